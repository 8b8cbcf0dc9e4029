-- The database's clock says not yet: return the alarm. No attempt is counted; the fence goes up, as with every
-- write. $1 ids, $2 generations, $3 attempts.
with returned as materialized (
    select d.id, t.due_at
    from unnest($1::bigint[], $2::integer[], $3::integer[]) as m (id, generation, attempt)
    join dueline.due d on d.id = m.id
    join dueline.task t on t.id = m.id
    where d.generation = m.generation and d.attempt = m.attempt and d.lease_until is not null
    order by d.id
    for update of d
)
update dueline.due d
set lease_until = null, claimed_at = null, claim_epoch = null, extensions = 0,
    next_at = greatest(d.next_at, r.due_at, clock_timestamp()),
    fence = d.fence + 1
from returned r
where d.id = r.id
