with refunded as (
    update shop.refunds
       set status = 'refunded',
           receipt = shop.wire_money(refunds.amount, refunds.gateway_down_until)
      from batch
     where refunds.id = batch.key::bigint and refunds.status = 'pending'
    returning batch.ord, batch.key
), noted as (
    insert into shop.effect (kind, key) select 'refund', key from refunded
)
select ord from refunded
