-- How often each layer stopped a duplicate.
select layer, sum(n)::bigint as stopped from dueline.duplicate_stop group by layer
