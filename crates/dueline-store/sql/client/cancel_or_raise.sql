-- $1 kind, $2 key, $3 reason.
select receipt, id, kind, key, state, generation, due_at, tier
from dueline.cancel_or_raise($1, $2, $3)
