update orders
   set status = 'closed', closes = closes + 1, closed_at = clock_timestamp()
 where id = any ($1::text[]::bigint[]) and status = 'unpaid'
