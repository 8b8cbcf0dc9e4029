-- $1 queue, $2 ids, $3 key hashes, $4 generations, $5 attempts, $6 how long a call may last, in milliseconds,
-- $7 duplicates that were taken out before.
select token, verdicts, may_have_run
from dueline.begin_calls($1, $2, $3, $4, $5, $6 * interval '1 millisecond', $7)
