-- Step 4 of the effect: lock the task rows in id order and only those that nobody holds, settle them, delete
-- their alarms, and forget the keys of the skipped ones, which may be scheduled again. `known` ones are settled
-- from the dedupe row that an earlier effect left.
--
-- $1 ids, $2 key hashes, $3 generations, $4 attempts, $5 when published, $6 done | skipped | known,
-- $7 the name of the transaction that step 1 began: a handler that ended it settles nothing.
-- One row. Fewer `settled` than asked: `ids` names them, and the others have moved. Fewer `silenced` than
-- `locked`, or fewer `forgotten` than `skipped`: task, alarm and key do not agree.
-- Nothing that is written here is indexed, so that the update can be HOT. It goes by the place (`ctid`) of the row
-- just locked, which nobody can move; one that was moved before the lock counts as moved.
with message as materialized (
    select m.id, m.key_hash, m.generation, m.attempt, m.published_at, m.outcome
    from unnest($1::bigint[], $2::uuid[], $3::integer[], $4::integer[], $5::timestamptz[], $6::text[])
         as m (id, key_hash, generation, attempt, published_at, outcome)
),
locked as materialized (
    select t.ctid as place, t.id, t.key_hash, m.published_at, m.outcome
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
    returning d.fence, l.place, l.published_at, l.outcome
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
    where t.ctid = s.place
    returning t.id, t.generation, t.attempt, t.finished_at, s.outcome
),
noted as (
    insert into dueline.task_event (task_id, step, from_state, to_state, generation, attempt, detail)
    select s.id, 'settle', 'live', 'done', s.generation, s.attempt, '{"from": "dedupe"}'
    from settled s
    where s.outcome = 'known'
)
select (select count(*) from locked) as locked,
       (select count(*) from locked l where l.outcome = 'skipped') as skipped,
       (select count(*) from silenced) as silenced,
       (select count(*) from forgotten) as forgotten,
       count(*) as settled,
       case when count(*) < cardinality($1) then array_agg(s.id) end as ids,
       max(s.finished_at) as finished_at
from settled s
