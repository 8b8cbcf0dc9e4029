-- The kinds that the database knows, whatever this process is configured for.
select name, queue, effect from dueline.kind
