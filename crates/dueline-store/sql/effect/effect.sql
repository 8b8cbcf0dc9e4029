-- A whole batch of a handler that is a statement. See `dueline.effect`.
select e.known, e.early, e.stale, e.moved, e.skipped, e.finished_at
from dueline.effect($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) e
