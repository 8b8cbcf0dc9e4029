-- Unfinished tasks, earliest alarm first, one page after a cursor (next_at, id). Each lane gives one page at most.
select clock_timestamp() as now, l.queue, l.tier, p.id, p.kind, p.key, p.due_at, p.next_at, p.lease_until,
       p.attempt, p.last_error
from dueline.lane l
cross join lateral (
    select d.id, t.kind, t.key, t.due_at, d.next_at, d.lease_until, d.attempt, t.last_error
    from dueline.due d
    join dueline.task t on t.id = d.id
    where d.lane = l.lane
      and (d.next_at, d.id) > ($3::timestamptz, $4::bigint)
      and d.next_at <= $5::timestamptz
      and ($2::text is null or t.kind = $2)
    order by d.next_at, d.id
    limit $6
) p
where $1::text is null or l.queue = $1
order by p.next_at, p.id
limit $6
