-- Moves alarms out of lanes that are about to go ($1) to the lanes of the same queue ($2) and this tier ($3), at
-- most $4 of them. When the tier changes, so does the topic, which nobody may read any more: a leased alarm waits
-- again and is published there, and a copy that did arrive is stopped by the guards. With the same tier a lease is
-- kept. A locked alarm is passed over: the caller comes again.
with picked as (
    select d.id
    from dueline.due d
    where d.lane = any ($1::integer[])
    limit $4
    for update skip locked
)
update dueline.due d
set lane        = l.lane,
    fence       = d.fence + 1,
    lease_until = case when $5::boolean then null else d.lease_until end,
    claimed_at  = case when $5::boolean then null else d.claimed_at end,
    claim_epoch = case when $5::boolean then null else d.claim_epoch end,
    extensions  = case when $5::boolean then 0 else d.extensions end
from picked p
join dueline.task t on t.id = p.id
join dueline.queue q on q.name = $2
join dueline.lane l
  on l.queue = q.name and l.tier = $3 and l.slot = dueline.slot_for(t.key_hash, q.slots)
where d.id = p.id
