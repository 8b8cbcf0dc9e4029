-- What waits, by queue and tier: reads every alarm once.
select l.queue, l.tier,
       count(d.id) filter (where d.lease_until is null and d.next_at > statement_timestamp()) as waiting,
       count(d.id) filter (where d.lease_until is null and d.next_at <= statement_timestamp()) as due,
       count(d.id) filter (where d.lease_until is not null) as published,
       min(d.next_at) as earliest,
       statement_timestamp() as now
from dueline.lane l
left join dueline.due d on d.lane = l.lane
where $1::text is null or l.queue = $1
group by l.queue, l.tier
order by l.queue, l.tier
