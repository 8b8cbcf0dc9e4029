-- Step 4 of the effect, for a handler in Rust. No row when this is not the transaction that step 1 named ($7): a
-- handler that ended it settles nothing, for the condition is tested before the function is called.
-- $1 ids, $2 key hashes, $3 generations, $4 attempts, $5 when published, $6 outcomes.
select s.finished_at, s.settled
from dueline.settle($1, $2, $3, $4, $5, $6) s
where current_setting('dueline.effect', true) = $7
