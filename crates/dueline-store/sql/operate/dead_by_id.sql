select clock_timestamp() as now, s.id, s.queue, s.kind, s.key, t.key_hash, s.generation, s.attempts, s.reason,
       s.error, s.died_at, s.lettered_at, t.due_at
from dueline.stranded s
join dueline.task t on t.id = s.id
where s.id = $1
