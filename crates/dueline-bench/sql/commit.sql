-- The smallest transaction that must be flushed to disk.
select pg_logical_emit_message(true, 'dueline-bench', 'x')
