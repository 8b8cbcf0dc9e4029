-- $1 id, $2 generation of the dead row, $3 who, $4 reason.
select receipt, id, kind, key, state, generation, due_at, tier
from dueline.discard($1, $2, $3, $4)
