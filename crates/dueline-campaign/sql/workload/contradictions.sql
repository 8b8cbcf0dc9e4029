-- Orders whose row, payment and ledger contradict one another, or what their payers were told. $1: ids whose payer
-- was told "paid", $2: whose payer was told "too late".
select 'order ' || o.id || ' is ' || o.status
       || case when o.paid_at is null then ', never paid' else ', paid' end
       || case when e.key is null then ', not in the ledger' else ', in the ledger as closed' end
       || case when o.id = any($1::bigint[]) then ', its payer was told "paid"' else '' end
       || case when o.id = any($2::bigint[]) then ', its payer was told "too late"' else '' end as what,
       o.id::text as key
  from shop.orders as o
  left join (select distinct key from shop.effect where kind = 'close_order') as e
         on e.key = o.id::text
 where (o.status = 'closed') <> (e.key is not null)
    or (o.status = 'paid') <> (o.paid_at is not null)
    or (o.paid_at is not null and o.closed_at is not null)
    or (o.id = any($1::bigint[]) and o.status <> 'paid')
    or (o.id = any($2::bigint[]) and o.status = 'unpaid')
