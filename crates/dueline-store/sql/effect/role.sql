-- Become $1 until the transaction ends, and say who we were. `none` is the session's own user.
-- A handler's statement is somebody else's, and may read as the planner likes ($2 `on`); ours walk indexes (`off`).
select current_setting('role') as before, set_config('role', $1, true) as now,
       set_config('enable_seqscan', $2, true) as seqscan, set_config('enable_bitmapscan', $2, true) as bitmapscan
