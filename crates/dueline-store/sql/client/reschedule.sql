-- $1 kind, $2 key, $3 due_at, $4 delay, $5 event_at, $6 payload (null: keep), $7 reason.
select receipt, id, kind, key, state, generation, due_at, tier
from dueline.reschedule($1, $2, $3, $4, $5, $6, $7)
