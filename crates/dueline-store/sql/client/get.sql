-- $1 kind, $2 key.
select id, queue, kind, key, state, phase, generation, attempt, due_at, next_at, lease_until, tier,
       payload, headers, created_at, published_at, finished_at, last_error
from dueline.get($1, $2)
