insert into job (kind, key, due_at)
select 'close_order', id::text, clock_timestamp() from generate_series(1, $1::bigint) as id
