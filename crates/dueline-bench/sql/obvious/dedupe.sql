insert into handled (kind, key)
select 'close_order', key from unnest($1::text[]) as key
on conflict do nothing
returning key
