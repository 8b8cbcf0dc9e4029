-- Record failures: a pause puts the task back to waiting, none buries it. task -> due, each in id order.
--
-- $1 ids, $2 key hashes, $3 generations, $4 attempts, $5 when published, $6 pauses in milliseconds (null: dead),
-- $7 attempts to charge (0 or 1), $8 errors, $9 reasons (null unless dead).
-- Answers the ordinals whose guards held; one that does not come back has moved.
with failure as materialized (
    select f.ord, f.id, f.key_hash, f.generation, f.attempt, f.published_at, f.pause_ms, f.charge, f.error,
           f.reason
    from unnest($1::bigint[], $2::uuid[], $3::integer[], $4::integer[], $5::timestamptz[], $6::bigint[],
                $7::integer[], $8::text[], $9::text[])
         with ordinality as f (id, key_hash, generation, attempt, published_at, pause_ms, charge, error, reason,
                               ord)
),
locked as materialized (
    select f.ord, t.id, f.published_at, f.pause_ms, f.charge, f.error, f.reason
    from failure f
    join dueline.task t on t.id = f.id
    where t.key_hash = f.key_hash and t.generation = f.generation and t.attempt = f.attempt
      and t.state = 'live'
    order by t.id
    for update of t
),
waiting as (
    update dueline.due d
    set next_at = clock_timestamp() + l.pause_ms * interval '1 millisecond',
        lease_until = null, claimed_at = null, claim_epoch = null, extensions = 0, unanswered = 0,
        attempt = d.attempt + l.charge, fence = d.fence + 1
    from locked l
    where d.id = l.id and l.pause_ms is not null
    returning l.*, null::integer as last_fence
),
silenced as (
    delete from dueline.due d using locked l where d.id = l.id and l.pause_ms is null
    returning l.*, d.fence as last_fence
),
written as (
    update dueline.task t
    set attempt = t.attempt + a.charge,
        last_error = a.error,
        published_at = coalesce(a.published_at, t.published_at),
        state = case when a.pause_ms is null then 'dead' else 'live' end,
        generation = case when a.pause_ms is null then t.generation + 1 else t.generation end,
        finished_at = case when a.pause_ms is null then clock_timestamp() end,
        fence = a.last_fence + 1
    from (select * from waiting union all select * from silenced) a
    where t.id = a.id and t.state = 'live'
    returning a.ord, t.id, t.state, t.generation, t.attempt, a.charge, a.pause_ms, a.error, a.reason
),
noted as (
    insert into dueline.task_event (task_id, step, from_state, to_state, generation, attempt, detail)
    select w.id, case when w.charge > 0 then 'fail' else 'die' end, 'live', w.state, w.generation, w.attempt,
           jsonb_strip_nulls(jsonb_build_object('error', w.error, 'reason', w.reason, 'pause_ms', w.pause_ms))
    from written w
),
-- As in the settle: added up, for joined sets of unknown size are compared row by row.
account as (
    select l.ord, -1 as owed, null::integer as generation, null::integer as attempt from locked l
    union all
    select w.ord, 1, w.generation, w.attempt from written w
)
select a.ord, sum(a.owed) = 0 as complete, coalesce(max(a.generation), 0) as generation,
       coalesce(max(a.attempt), 0) as attempt
from account a
group by a.ord
order by a.ord
