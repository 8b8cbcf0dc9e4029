-- Orders whose row, payment and ledger contradict one another. $1: orders whose payer was told
-- "paid".
select 'order ' || o.id || ' is ' || o.status
       || case when o.paid_at is null then ', never paid' else ', paid' end
       || case when e.key is null then ', not in the ledger' else ', in the ledger as closed' end
  from shop.orders as o
  left join (select distinct key from shop.effect where kind = 'close_order') as e
         on e.key = o.id::text
 where (o.status = 'closed') <> (e.key is not null)
    or (o.status = 'paid') <> (o.paid_at is not null)
    or (o.paid_at is not null and o.closed_at is not null)
    or (o.id = any($1::bigint[]) and o.status <> 'paid')
