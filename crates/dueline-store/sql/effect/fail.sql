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
    returning d.id
),
silenced as (
    delete from dueline.due d using locked l where d.id = l.id and l.pause_ms is null
    returning d.id, d.fence
),
written as (
    update dueline.task t
    set attempt = t.attempt + l.charge,
        last_error = l.error,
        published_at = coalesce(l.published_at, t.published_at),
        state = case when s.id is null then 'live' else 'dead' end,
        generation = case when s.id is null then t.generation else t.generation + 1 end,
        finished_at = case when s.id is null then null else clock_timestamp() end,
        fence = s.fence + 1
    from locked l
    left join silenced s on s.id = l.id
    left join waiting w on w.id = l.id
    where t.id = l.id and t.state = 'live' and (s.id is not null or w.id is not null)
    returning l.ord, t.id, t.state, t.generation, t.attempt, l.charge, l.pause_ms, l.error, l.reason
),
noted as (
    insert into dueline.task_event (task_id, step, from_state, to_state, generation, attempt, detail)
    select w.id, case when w.charge > 0 then 'fail' else 'die' end, 'live', w.state, w.generation, w.attempt,
           jsonb_strip_nulls(jsonb_build_object('error', w.error, 'reason', w.reason, 'pause_ms', w.pause_ms))
    from written w
)
select l.ord, w.ord is not null as complete, coalesce(w.generation, 0) as generation,
       coalesce(w.attempt, 0) as attempt
from locked l
left join written w on w.ord = l.ord
order by l.ord
