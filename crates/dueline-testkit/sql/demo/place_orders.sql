-- New orders and their deadlines, in one transaction of the business's own. $1 ids, $2 delays in
-- milliseconds.
with placed as (
    insert into shop.orders (id) select unnest($1::bigint[]) returning id
), waited as (
    select count(*) from placed
)
select s.key, s.receipt, s.tier, (extract(epoch from s.due_at) * 1000000)::bigint as due_at
  from waited,
       dueline.schedule_many('close_order', $1::bigint[]::text[],
                             delays => array(select d * interval '1 millisecond'
                                               from unnest($2::bigint[]) as d)) as s
