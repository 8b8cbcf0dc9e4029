-- Step 4 of the effect: lock the task rows in id order and only those that nobody holds, settle them, delete
-- their alarms, and forget the keys of the skipped ones, which may be scheduled again. `known` ones are settled
-- from the dedupe row that an earlier effect left.
--
-- $1 ids, $2 key hashes, $3 generations, $4 attempts, $5 when published, $6 done | skipped | known,
-- $7 the name of the transaction that step 1 began: a handler that ended it settles nothing.
-- A row that does not come back has moved. `complete` is false when task, alarm and key do not agree.
-- Nothing that is written here is indexed, so that the update can be HOT.
with message as materialized (
    select m.id, m.key_hash, m.generation, m.attempt, m.published_at, m.outcome
    from unnest($1::bigint[], $2::uuid[], $3::integer[], $4::integer[], $5::timestamptz[], $6::text[])
         as m (id, key_hash, generation, attempt, published_at, outcome)
),
locked as materialized (
    select t.id, t.key_hash, m.published_at, m.outcome
    from message m
    join dueline.task t on t.id = m.id
    where t.key_hash = m.key_hash and t.generation = m.generation and t.attempt = m.attempt
      and t.state = 'live'
      and current_setting('dueline.effect', true) = $7
      and (m.outcome <> 'known'
           or exists (select from dueline.dedupe d where d.key_hash = m.key_hash and d.outcome = 'done'))
    order by t.id
    for update of t skip locked
),
silenced as (
    delete from dueline.due d using locked l where d.id = l.id
    returning d.id, d.fence, l.published_at, l.outcome
),
forgotten as (
    delete from dueline.dedupe d using locked l where l.outcome = 'skipped' and d.key_hash = l.key_hash
    returning l.id
),
settled as (
    update dueline.task t
    set state = case s.outcome when 'skipped' then 'skipped' else 'done' end,
        finished_at = clock_timestamp(),
        published_at = s.published_at,
        -- A skipped task may be opened again, and its fence must never fall; a done one never is.
        fence = case s.outcome when 'skipped' then s.fence + 1 end
    from silenced s
    where t.id = s.id and t.state = 'live'
    returning t.id, t.generation, t.attempt, t.finished_at, s.outcome
),
noted as (
    insert into dueline.task_event (task_id, step, from_state, to_state, generation, attempt, detail)
    select s.id, 'settle', 'live', 'done', s.generation, s.attempt, '{"from": "dedupe"}'
    from settled s
    where s.outcome = 'known'
),
-- What each locked row owes: to be settled and, when skipped, to have its key forgotten. Added up, not joined:
-- the planner takes these sets for one row each, and would compare every row with every other.
account as (
    select l.id, case l.outcome when 'skipped' then -2 else -1 end as owed, null::timestamptz as finished_at
    from locked l
    union all
    select s.id, 1, s.finished_at from settled s
    union all
    select f.id, 1, null from forgotten f
)
select a.id, sum(a.owed) = 0 as complete, max(a.finished_at) as finished_at
from account a
group by a.id
