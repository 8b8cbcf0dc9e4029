-- Become $1 until the transaction ends, and say who we were. `none` is the session's own user.
select current_setting('role') as before, set_config('role', $1, true) as now
