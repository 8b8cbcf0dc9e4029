insert into dueline.patrol as p (table_name, next_block)
values ($1::text, $2::bigint)
on conflict (table_name) do update
   set next_block = excluded.next_block, at = clock_timestamp()
