update orders o
   set status = 'closed', closes = o.closes + 1, closed_at = clock_timestamp()
  from batch b
 where o.id = b.key::bigint and o.status = 'unpaid'
returning b.ord
