-- Refunds and their deadlines. $1 ids, $2 delays and $3 how long after the deadline the gateway is down, both in
-- milliseconds (null: it is up), $4 amounts.
with placed as (
    insert into shop.refunds (id, amount, gateway_down_until)
    select r.id, r.amount, coalesce(clock_timestamp() + (r.delay + r.down) * interval '1 millisecond', '-infinity')
      from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[]) as r (id, delay, down, amount)
    on conflict do nothing
    returning id
), waited as (
    select count(*) from placed
)
select s.key, s.receipt, (extract(epoch from s.due_at) * 1000000)::bigint as due_at
  from waited,
       dueline.schedule_many('refund', $1::bigint[]::text[],
                             delays => array(select d * interval '1 millisecond' from unnest($2::bigint[]) as d)) as s
