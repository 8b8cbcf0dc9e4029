-- The team's own transaction: it remembers the keys, and closes the orders of those that are new to it.
-- $1 order ids, $2 key hashes.
with message as (
    select distinct on (m.key_hash) m.id, m.key_hash from unnest($1::bigint[], $2::uuid[]) m (id, key_hash)
    order by m.key_hash
), new as (
    insert into team_handled (key_hash) select m.key_hash from message m order by m.key_hash
    on conflict do nothing
    returning key_hash
)
update orders o
   set status = 'closed', closes = o.closes + 1, closed_at = clock_timestamp()
  from message m
  join new n on n.key_hash = m.key_hash
 where o.id = m.id and o.status = 'unpaid'
