-- $1 kind, $2 keys, $3 due_at, $4 delays, $5 event_at, $6 payloads, $7 headers, $8 on_conflict, $9 jitter.
select ord, receipt, id, kind, key, state, generation, due_at, tier
from dueline.schedule_many($1, $2, $3, $4, $5, $6, $7, $8, $9)
order by ord
