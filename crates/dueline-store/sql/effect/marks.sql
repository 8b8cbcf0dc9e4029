-- The crash marks of a group. $1 group, $2 topics, $3 partitions.
select c.topic, c.partition, c.record_offset, c.tries
from unnest($2::text[], $3::integer[]) as p (topic, partition)
join dueline.consuming c on c.consumer_group = $1 and c.topic = p.topic and c.partition = p.partition
