update shop.orders
   set status = 'closed', closed_at = clock_timestamp()
  from batch
 where orders.id = batch.key::bigint and orders.status = 'unpaid'
returning batch.ord
