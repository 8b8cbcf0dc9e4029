-- scheduled → published: takes what is due in the relay's own lanes, oldest first in each, one total budget ($5)
-- shared among the lanes that have due work. Writes `due` only; the bodies are read by another statement, since
-- one that joined `task` paired an old body with a new alarm.
--
-- Nothing later than $7 is taken: how far the relay's own steady clock allows the database's clock to be.
-- `statement_timestamp()`: the comparison must be usable by the index. `any (array(...))`: whatever the planner
-- believes about the number of rows, it looks them up by key.
-- Always at least one row, for its `now`; without a claim the other columns are null.
with asked as (
    select a.lane, a.cursor_at, a.cursor_id
      from unnest($1::integer[], $2::timestamptz[], $3::bigint[]) as a (lane, cursor_at, cursor_id)
      join dueline.lane l on l.lane = a.lane and l.epoch = $4::bigint
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
               and d.next_at <= least(statement_timestamp(), $7::timestamptz)
               and d.lease_until is null
             order by d.next_at, d.id
             limit 1
           ) f
), picked as (
    select p.id
      from ready r
     cross join lateral (
            select d.id
              from dueline.due d
             where d.lane = r.lane
               and (d.next_at, d.id) >= (r.next_at, r.id)
               and d.next_at <= least(statement_timestamp(), $7::timestamptz)
               and d.lease_until is null
             order by d.next_at, d.id
             limit greatest(1, $5::integer / r.lanes)
               for update skip locked
           ) p
     where r.place <= $5::integer
), claimed as (
    update dueline.due d
       set lease_until = clock_timestamp() + $6::interval,
           claimed_at  = clock_timestamp(),
           claim_epoch = $4::bigint,
           claim_no    = d.claim_no + 1,
           fence       = d.fence + 1,
           extensions  = 0
     where d.id = any (array(select p.id from picked p))
    returning d.id, d.lane, d.next_at, d.generation, d.attempt, d.fence, d.claim_no, d.claimed_at
)
select statement_timestamp() as now,
       (select count(*) from ready) as ready_lanes,
       c.id, c.lane, c.next_at, c.generation, c.attempt, c.fence, c.claim_no, c.claimed_at
  from (values (1)) as one
  left join claimed c on true
