-- The dead, oldest first, one page after a cursor (died_at, id).
select clock_timestamp() as now, s.id, s.queue, s.kind, s.key, t.key_hash, s.generation, s.attempts, s.reason,
       s.error, s.died_at, s.lettered_at, t.due_at
from dueline.stranded s
join dueline.task t on t.id = s.id
where ($1::text is null or s.queue = $1)
  and ($2::text is null or s.kind = $2)
  and ($3::timestamptz is null or s.died_at >= $3)
  and ($4::timestamptz is null or s.died_at < $4)
  and ($5::text is null or s.reason = $5)
  and ($6::text is null or s.key like $6)
  and (s.died_at, s.id) > ($7::timestamptz, $8::bigint)
order by s.died_at, s.id
limit $9
