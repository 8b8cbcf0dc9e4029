update shop.parcels set times = times + 1 where id = any($1::text[]::bigint[]) returning id::text
