-- $1 kind, $2 key, $3 due_at, $4 delay, $5 event_at, $6 payload, $7 headers, $8 on_conflict, $9 jitter.
select receipt, id, kind, key, state, generation, due_at, tier
from dueline.schedule($1, $2, $3, $4, $5, $6, $7, $8, $9)
