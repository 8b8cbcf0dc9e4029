-- Orders and their deadlines, in one transaction. $1 ids, $2 delays in milliseconds. Doing it again does no harm.
with placed as (
    insert into shop.orders (id) select unnest($1::bigint[]) on conflict do nothing returning id
), waited as (
    select count(*) from placed
)
select s.key, s.receipt, (extract(epoch from s.due_at) * 1000000)::bigint as due_at
  from waited,
       dueline.schedule_many('close_order', $1::bigint[]::text[],
                             delays => array(select d * interval '1 millisecond' from unnest($2::bigint[]) as d)) as s
