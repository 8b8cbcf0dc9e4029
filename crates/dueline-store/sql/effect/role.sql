-- Become $1 until the transaction ends, and say who we were. `none` is the session's own user.
-- A handler's statement is somebody else's: it may read whole tables ($2 `on`); ours never do (`off`).
select current_setting('role') as before, set_config('role', $1, true) as now,
       set_config('enable_seqscan', $2, true) as scans
