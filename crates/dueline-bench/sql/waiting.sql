-- Makes $2 tasks with the keys $1, $1 + 1, … that wait for weeks: the rows that schedule_many would write, in
-- their lanes by the hash of their keys. In every tier, the shortest too, as for an event that is weeks ahead.
with input as (
    select n::text as key, h.key_hash, q.name as queue, q.slots,
           tiers.names[1 + n % cardinality(tiers.names)] as tier,
           clock_timestamp() + interval '7 days' + random() * interval '60 days' as due_at
      from generate_series($1::bigint, $1::bigint + $2::bigint - 1) n
      join dueline.kind k on k.name = $3
      join dueline.queue q on q.name = k.queue
     cross join lateral (select array_agg(t.name order by t.rank) as names
                           from dueline.tier t where t.queue = q.name) tiers
     cross join lateral (select dueline.key_hash(k.queue, k.name, n::text) offset 0) h (key_hash)
),
made as (
    insert into dueline.task (key_hash, due_at, kind, key, tier)
    select i.key_hash, i.due_at, $3, i.key, i.tier from input i
    returning id, key_hash, due_at, tier
)
insert into dueline.due (id, next_at, lane, generation, attempt)
select m.id, dueline.alarm_at(m.due_at), l.lane, 0, 0
  from made m
  join dueline.queue q on q.name = (select k.queue from dueline.kind k where k.name = $3)
  join dueline.lane l on l.queue = q.name and l.tier = m.tier
                     and l.slot = dueline.slot_for(m.key_hash, q.slots)
