-- Remembers a topic as it is now. `since` moves only when it is another topic, or has another number of partitions.
insert into dueline.topic_seen as t (topic, topic_id, partitions)
values ($1::text, $2::text, $3::integer)
on conflict (topic) do update
   set topic_id = excluded.topic_id, partitions = excluded.partitions, since = clock_timestamp()
 where (t.topic_id, t.partitions) is distinct from (excluded.topic_id, excluded.partitions)
