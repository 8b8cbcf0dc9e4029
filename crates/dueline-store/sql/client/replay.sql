-- $1 id, $2 generation of the dead row, $3 key hash, $4 who, $5 force, $6 how long finished keys are remembered.
select receipt, id, kind, key, state, generation, due_at, tier
from dueline.replay($1, $2, $3, $4, $5, $6)
