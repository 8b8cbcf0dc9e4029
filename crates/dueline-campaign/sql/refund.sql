-- Without a condition of its own: only dueline keeps it from happening twice.
update shop.refunds
   set times = times + 1, receipt = shop.wire_money(refunds.amount, refunds.gateway_down_until)
  from batch
 where refunds.id = batch.key::bigint
returning batch.ord
