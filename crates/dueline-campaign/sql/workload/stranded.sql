-- Some of the dead, oldest first.
select s.id, s.generation, t.key_hash, s.kind, s.key
  from dueline.stranded as s
  join dueline.task as t on t.id = s.id
 where s.died_at < clock_timestamp() - interval '1 second'
 order by s.died_at
 limit 12
