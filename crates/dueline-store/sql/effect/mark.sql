-- Say what is about to be handled. $1 group, $2 topics, $3 partitions, $4 offsets, $5 tries.
insert into dueline.consuming as c (consumer_group, topic, partition, record_offset, tries)
select $1, m.topic, m.partition, m.record_offset, m.tries
from unnest($2::text[], $3::integer[], $4::bigint[], $5::integer[]) as m (topic, partition, record_offset, tries)
order by m.topic, m.partition
on conflict (consumer_group, topic, partition) do update
set record_offset = excluded.record_offset, tries = excluded.tries, marked_at = clock_timestamp()
