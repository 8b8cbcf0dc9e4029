-- $1 kind, $2 keys, $3 reason.
select ord, receipt, id, kind, key, state, generation, due_at, tier
from dueline.cancel_many($1, $2, $3)
order by ord
