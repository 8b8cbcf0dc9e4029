-- Since when each of these topics is the one it is.
select topic, topic_id, partitions, since
  from dueline.topic_seen
 where topic = any ($1::text[])
