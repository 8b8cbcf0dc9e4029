-- The relay's hot statement as a function of the database.

-- The claim and the bodies of what it took: two statements, one round trip.
--
-- scheduled → published: takes what is due in the relay's own lanes, oldest first in each, one total budget shared
-- among the lanes that have due work. Nothing later than `not_after` is taken: how far the relay's own steady clock
-- allows the database's clock to be. `statement_timestamp()`: the comparison must be usable by the index. The update
-- goes by the places (`ctid`) of the rows that were just locked: nobody can move them, so that no second look-up is
-- needed. A row that somebody moved between the snapshot and the lock is found at its new place by the next claim.
--
-- The claim writes `due` only. The bodies are read by a statement of their own, whose snapshot is younger than the
-- alarms' locks: who changes a task changes its alarm in the same transaction, so that one is either seen whole or
-- waits for us. One statement that joined `task` paired an old body with a new alarm. A body whose generation is not
-- the claim's belongs to a newer alarm; the relay leaves it out.
--
-- One row. The arrays are null without a claim; bodies come in no particular order, of live tasks only.
-- Its plans are kept and shaped by the settings of the relay's session.
create function dueline.claim(lanes integer[], cursor_at timestamptz[], cursor_id bigint[], relay_epoch bigint,
                              budget integer, lease interval, not_after timestamptz,
                              out now timestamptz, out ready_lanes bigint,
                              out id bigint[], out lane integer[], out next_at timestamptz[],
                              out generation integer[], out attempt integer[], out fence integer[],
                              out claim_no integer[], out claimed_at timestamptz[],
                              out body_id bigint[], out body_generation integer[], out kind text[],
                              out key text[], out key_hash uuid[], out due_at timestamptz[],
                              out payload text[], out headers text[])
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp
as $$
#variable_conflict use_column
begin
    with asked as (
        select a.lane, a.cursor_at, a.cursor_id
          from unnest(claim.lanes, claim.cursor_at, claim.cursor_id) as a (lane, cursor_at, cursor_id)
          join dueline.lane l on l.lane = a.lane and l.epoch = claim.relay_epoch
    ), ready as (
        select a.lane, f.next_at, f.id,
               row_number() over (order by f.next_at, f.id) as place,
               count(*) over () as lanes
          from asked a
         cross join lateral (
                select d.next_at, d.id
                  from dueline.due d
                 where d.lane = a.lane
                   and (d.next_at, d.id) > (a.cursor_at, a.cursor_id)
                   and d.next_at <= least(statement_timestamp(), claim.not_after)
                   and d.lease_until is null
                 order by d.next_at, d.id
                 limit 1
               ) f
    ), picked as (
        select p.place
          from ready r
         cross join lateral (
                select d.ctid as place
                  from dueline.due d
                 where d.lane = r.lane
                   and (d.next_at, d.id) >= (r.next_at, r.id)
                   and d.next_at <= least(statement_timestamp(), claim.not_after)
                   and d.lease_until is null
                 order by d.next_at, d.id
                 limit greatest(1, claim.budget / r.lanes)
                   for update skip locked
               ) p
         where r.place <= claim.budget
    ), claimed as (
        update dueline.due d
           set lease_until = clock_timestamp() + claim.lease,
               claimed_at  = clock_timestamp(),
               claim_epoch = claim.relay_epoch,
               claim_no    = d.claim_no + 1,
               fence       = d.fence + 1,
               extensions  = 0
         where d.ctid = any (array(select p.place from picked p))
        returning d.id, d.lane, d.next_at, d.generation, d.attempt, d.fence, d.claim_no, d.claimed_at
    )
    select statement_timestamp(), (select count(*) from ready),
           array_agg(c.id), array_agg(c.lane), array_agg(c.next_at), array_agg(c.generation), array_agg(c.attempt),
           array_agg(c.fence), array_agg(c.claim_no), array_agg(c.claimed_at)
      into now, ready_lanes, id, lane, next_at, generation, attempt, fence, claim_no, claimed_at
      from (select * from claimed order by next_at, id) c;
    if claim.id is not null then
        select array_agg(t.id), array_agg(t.generation), array_agg(t.kind), array_agg(t.key::text),
               array_agg(t.key_hash), array_agg(t.due_at::timestamptz), array_agg(t.payload::text),
               array_agg(t.headers::text)
          into body_id, body_generation, kind, key, key_hash, due_at, payload, headers
          from dueline.task t
         where t.id = any (claim.id)
           and t.state = 'live';
    end if;
end $$;
