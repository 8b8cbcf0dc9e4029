-- published → published, or a missed one → published: a new claim of exactly the alarms that the sweep saw. Both the
-- fence and the deadline are asked again: a reschedule between reading and this made a task fire early.
-- The answer has the form of the claim's.
with locked as (
    select d.id, s.lease_us, s.consumed
      from unnest($1::bigint[], $2::integer[], $3::bigint[], $4::boolean[]) as s (id, fence, lease_us, consumed)
      join dueline.due d on d.id = s.id and d.fence = s.fence
     where d.next_at <= statement_timestamp()
     order by d.id
       for update of d skip locked
), claimed as (
    update dueline.due d
       set lease_until = clock_timestamp() + l.lease_us * interval '1 microsecond',
           claimed_at  = clock_timestamp(),
           claim_epoch = $5::bigint,
           claim_no    = d.claim_no + 1,
           fence       = d.fence + 1,
           extensions  = 0,
           unanswered  = least(d.unanswered + l.consumed::integer, 32000)
      from locked l
     where d.id = l.id
    returning d.id, d.lane, d.next_at, d.generation, d.attempt, d.fence, d.claim_no, d.claimed_at
)
select array_agg(c.id) as id, array_agg(c.lane) as lane, array_agg(c.next_at) as next_at,
       array_agg(c.generation) as generation, array_agg(c.attempt) as attempt, array_agg(c.fence) as fence,
       array_agg(c.claim_no) as claim_no, array_agg(c.claimed_at) as claimed_at
  from (select * from claimed order by next_at, id) c
