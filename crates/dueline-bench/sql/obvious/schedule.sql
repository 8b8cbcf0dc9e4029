insert into job (kind, key, due_at)
select 'close_order', key, clock_timestamp() from unnest($1::text[]) as key
on conflict (kind, key) do nothing
