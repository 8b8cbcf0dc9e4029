with closed as (
    update shop.orders
       set status = 'closed', closed_at = clock_timestamp()
      from batch
     where orders.id = batch.key::bigint and orders.status = 'unpaid'
    returning batch.ord, batch.key
), noted as (
    insert into shop.effect (kind, key) select 'close_order', key from closed
)
select ord from closed
