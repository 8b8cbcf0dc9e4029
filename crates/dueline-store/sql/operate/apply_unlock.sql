-- The next apply may begin.
select pg_advisory_unlock(hashtextextended('dueline apply', 0))
