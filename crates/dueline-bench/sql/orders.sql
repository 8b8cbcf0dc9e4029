insert into orders (id) select generate_series($1::bigint, $2::bigint)
