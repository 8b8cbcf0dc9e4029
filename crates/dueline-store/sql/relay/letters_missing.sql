-- Deaths whose letter is still missing after a grace, oldest first: whoever made a task dead writes its letter at
-- once, and this is for those that could not.
select s.id, s.queue, s.kind, s.key, s.generation, s.attempts, s.reason, s.error, s.died_at,
       t.key_hash, t.payload::text as payload, t.headers::text as headers
  from dueline.stranded s
  join dueline.task t on t.id = s.id
 where s.lettered_at is null
   and s.died_at < statement_timestamp() - $1::interval
 order by s.died_at
 limit $2::integer
