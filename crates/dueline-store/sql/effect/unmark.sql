-- Those offsets are behind us: their marks go. $1 group, $2 topics, $3 partitions, $4 the offsets to read next.
delete from dueline.consuming c
using unnest($2::text[], $3::integer[], $4::bigint[]) as p (topic, partition, next_offset)
where c.consumer_group = $1 and c.topic = p.topic and c.partition = p.partition
  and c.record_offset < p.next_offset
