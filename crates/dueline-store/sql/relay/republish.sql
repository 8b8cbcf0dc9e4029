-- published → published, or a missed one → published: a new claim of exactly the alarms that the sweep saw. Both the
-- fence and the deadline are asked again: a reschedule between reading and this made a task fire early.
with locked as (
    select d.id
      from unnest($1::bigint[], $2::integer[]) as s (id, fence)
      join dueline.due d on d.id = s.id and d.fence = s.fence
     where d.next_at <= statement_timestamp()
     order by d.id
       for update of d skip locked
)
update dueline.due d
   set lease_until = clock_timestamp() + s.lease_us * interval '1 microsecond',
       claimed_at  = clock_timestamp(),
       claim_epoch = $5::bigint,
       claim_no    = d.claim_no + 1,
       fence       = d.fence + 1,
       extensions  = 0,
       unanswered  = least(d.unanswered + s.consumed::integer, 32000)
  from unnest($1::bigint[], $3::bigint[], $4::boolean[]) as s (id, lease_us, consumed)
 where d.id = s.id
   and d.id = any (array(select l.id from locked l))
returning statement_timestamp() as now, d.id, d.lane, d.next_at, d.generation, d.attempt, d.fence, d.claim_no,
          d.claimed_at
