-- One apply at a time in this database; the session's end gives the lock back.
select pg_try_advisory_lock(hashtextextended('dueline apply', 0))
