-- What other teams say of tasks that they handle (kinds whose effect is `elsewhere` or `team`): outcomes in bulk, as
-- the relay reads them from a topic. The next file has what a team with access to this database calls instead.
--
-- A failure is judged here and not by a program, so that all ways keep one retry schedule: the kind's.
--
-- Errors of our own:
--   DLX01  task, alarm and key do not agree

-- Records a failure of each of these tasks, which the caller has locked and judged: live, of this very try. Answers
-- what became of each: retry, dead, or cancelled when somebody had asked for a cancel while it ran.
-- A pause has full jitter over the kind's backoff, and is never shorter than what the failure asked for.
create function dueline.record_failures(ids bigint[], errors text[], permanent boolean[], at_least_ms bigint[])
returns text[]
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp
as $$
declare
    verdicts text[];
    dead bigint[];
begin
    with failed as materialized (
        select f.ord, f.id, left(coalesce(f.error, ''), 2000) as error, t.kind,
               case when t.cancel_wished_at is not null then 'cancelled'
                    when f.permanent or k.backoff_ms[t.attempt + 1] is null then 'dead'
                    else 'retry' end as verdict,
               greatest(random() * k.backoff_ms[t.attempt + 1], f.at_least_ms, 0) as pause_ms,
               f.permanent, k.effect,
               exists (select from dueline.dedupe x where x.key_hash = t.key_hash and x.unknown) as doubtful
        from unnest(record_failures.ids, record_failures.errors, record_failures.permanent,
                    record_failures.at_least_ms)
             with ordinality as f (id, error, permanent, at_least_ms, ord)
        join dueline.task t on t.id = f.id
        join dueline.kind k on k.name = t.kind
    ),
    waiting as (
        update dueline.due d
        set next_at = clock_timestamp() + f.pause_ms * interval '1 millisecond',
            lease_until = null, claimed_at = null, claim_epoch = null, extensions = 0, unanswered = 0,
            attempt = d.attempt + 1, fence = d.fence + 1
        from failed f
        where d.id = f.id and f.verdict = 'retry'
        returning f.*, null::integer as last_fence
    ),
    silenced as (
        delete from dueline.due d using failed f where d.id = f.id and f.verdict <> 'retry'
        returning f.*, d.fence as last_fence
    ),
    written as (
        update dueline.task t
        set attempt = t.attempt + 1,
            last_error = a.error,
            state = case a.verdict when 'retry' then 'live' else a.verdict end,
            generation = case a.verdict when 'retry' then t.generation else t.generation + 1 end,
            finished_at = case when a.verdict <> 'retry' then clock_timestamp() end,
            fence = a.last_fence + 1,
            -- Without a `begin` nobody knows which messages are still being handled.
            may_have_run = t.may_have_run or a.verdict = 'cancelled' and a.effect = 'team'
        from (select * from waiting union all select * from silenced) a
        where t.id = a.id
        returning a.ord, a.verdict, a.error, a.pause_ms, a.doubtful, t.may_have_run, t.id, t.state, t.generation, t.attempt
    ),
    noted as (
        insert into dueline.task_event (task_id, step, from_state, to_state, generation, attempt, detail)
        select w.id, case w.verdict when 'cancelled' then 'cancel' else 'fail' end, 'live', w.state, w.generation,
               w.attempt,
               jsonb_strip_nulls(jsonb_build_object(
                   'error', w.error,
                   'pause_ms', case w.verdict when 'retry' then round(w.pause_ms::numeric) end,
                   'receipt', case when w.verdict <> 'cancelled' then null
                                   when w.may_have_run or w.doubtful then 'may_have_run'
                                   else 'cancelled' end,
                   'from', case w.verdict when 'cancelled' then 'wish' end))
        from written w
    )
    select array_agg(w.verdict order by w.ord), array_agg(w.id) filter (where w.verdict = 'dead')
    into verdicts, dead
    from written w;
    if coalesce(cardinality(verdicts), 0) <> cardinality(ids) then
        raise exception 'task, alarm and key do not agree: % failures, % written',
                        cardinality(ids), coalesce(cardinality(verdicts), 0) using errcode = 'DLX01';
    end if;
    if dead is not null then
        -- A statement of its own: the history ends with the failure just noted.
        insert into dueline.stranded (id, queue, kind, key, generation, attempts, reason, error, history)
        select t.id, k.queue, t.kind, t.key, t.generation, t.attempt,
               -- First of all: somebody must look at what an earlier call may have done.
               case when exists (select from dueline.dedupe x where x.key_hash = t.key_hash and x.unknown)
                        then 'outcome_unknown'
                    when f.permanent then 'permanent'
                    else 'exhausted' end,
               t.last_error,
               (select coalesce(jsonb_agg(jsonb_build_object(
                           'at', e.at, 'generation', e.generation, 'attempt', e.attempt,
                           'error', e.detail ->> 'error') order by e.event), '[]')
                from (select v.event, v.at, v.generation, v.attempt, v.detail
                      from dueline.task_event v
                      where v.task_id = t.id and v.step in ('fail', 'die')
                      order by v.event desc
                      limit 100) e)
        from unnest(record_failures.ids, record_failures.permanent) f (id, permanent)
        join dueline.task t on t.id = f.id
        join dueline.kind k on k.name = t.kind
        where f.id = any (dead);
    end if;
    return verdicts;
end $$;

-- Outcomes in bulk: at most one of each task. Answers a verdict for each, in their order:
--
--   done, skipped           the live task is settled
--   known                   it was done before: a duplicate
--   old_generation          done, of a generation before the row's: the live task is settled, with an event
--   without_task            done, and the row is cancelled, skipped or dead: an event tells of it
--   retry, dead, cancelled  a failure is recorded, and this is what became of the task
--   working                 the lease goes on
--   stale                   the row has gone on
--   unknown                 no such task, or a try that never was
--   locked                  somebody holds the row: ask again
--
-- `done` and `skipped` speak of the key; a failure and `working` speak of one try. That an effect happened is
-- remembered whatever the row says: the key must not have a second one.
-- Locks: dedupe in hash order, then task in id order, skipping what is held, then due.
create function dueline.settle_outcomes(ids bigint[], hashes uuid[], generations integer[], attempts integer[],
                                        outcomes text[], reasons text[], retry_after_ms bigint[], lease interval)
returns text[]
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp
as $$
declare
    verdicts text[] := array_fill('unknown'::text, array[cardinality(ids)]);
    speaking integer[];
    ords integer[];
    fresh uuid[];
    places tid[];
    n record;
    failed integer[];
    became text[];
    i integer;
begin
    -- What the outcomes can speak of: a try that was. A row's generation and attempt only ever grow.
    with message as materialized (
        select m.ord, m.key_hash, m.generation, m.attempt, m.outcome
        from unnest(settle_outcomes.ids, hashes, generations, attempts, outcomes)
             with ordinality as m (id, key_hash, generation, attempt, outcome, ord)
        join dueline.task t on t.id = m.id
        where t.key_hash = m.key_hash and (m.generation, m.attempt) <= (t.generation, t.attempt)
          and m.generation >= 0 and m.attempt >= 0
    ),
    entered as (
        insert into dueline.dedupe as d (key_hash, finished_at, generation, attempt, outcome)
        select m.key_hash, clock_timestamp(), m.generation, m.attempt, 'done'
        from message m
        where m.outcome = 'done'
        order by m.key_hash
        on conflict (key_hash) do update
        set finished_at = excluded.finished_at, generation = excluded.generation, attempt = excluded.attempt,
            outcome = 'done', token = null, until = null
        where d.outcome <> 'done'
        returning d.key_hash
    )
    select (select array_agg(m.ord::integer) from message m), (select array_agg(e.key_hash) from entered e)
    into speaking, fresh;
    if speaking is null then
        return verdicts;
    end if;
    -- A try that had begun, and says itself that it has ended.
    if exists (select from unnest(outcomes) o where o in ('retry', 'dead')) then
        perform from dueline.dedupe d
        where d.key_hash = any (array(select hashes[o] from unnest(speaking) o where outcomes[o] in ('retry', 'dead')))
        order by d.key_hash
        for update;
        update dueline.dedupe d
        set outcome = 'failed', token = null, until = null
        from unnest(speaking) o
        where outcomes[o] in ('retry', 'dead') and d.key_hash = hashes[o] and d.outcome = 'in_progress'
          and d.generation = generations[o] and d.attempt = attempts[o];
    end if;

    -- Locked by a statement of its own: the next one sees what it has waited for.
    select array_agg(l.ord), array_agg(l.place) into ords, places
    from (select o as ord, t.ctid as place
          from unnest(speaking) o
          join dueline.task t on t.id = ids[o] and t.key_hash = hashes[o]
          order by t.id
          for update of t skip locked) l;

    with judged as materialized (
        select l.ord, l.place, t.id, t.key_hash, t.state, t.generation, t.attempt,
               generations[l.ord] as said_generation,
               case when outcomes[l.ord] = 'done' then
                        case when t.state = 'done' then 'known'
                             when t.state <> 'live' then 'without_task'
                             when t.generation <> generations[l.ord] then 'old_generation'
                             else 'done' end
                    when t.state <> 'live' or t.generation <> generations[l.ord] then 'stale'
                    when outcomes[l.ord] = 'skipped' then 'skipped'
                    when t.attempt <> attempts[l.ord] then 'stale'
                    else outcomes[l.ord] end as verdict
        from unnest(ords, places) l (ord, place)
        join dueline.task t on t.ctid = l.place
    ),
    -- A skip of a key that is done speaks of an effect all the same.
    forgotten as (
        delete from dueline.dedupe d using judged j
        where j.verdict = 'skipped' and d.key_hash = j.key_hash and d.outcome <> 'done'
    ),
    silenced as (
        delete from dueline.due d using judged j
        where d.id = j.id and j.verdict in ('done', 'old_generation', 'skipped')
        returning j.place, j.verdict, d.fence, d.claimed_at
    ),
    written as (
        update dueline.task t
        set state = case s.verdict when 'skipped' then 'skipped' else 'done' end,
            finished_at = clock_timestamp(),
            published_at = coalesce(s.claimed_at, t.published_at),
            fence = case s.verdict when 'skipped' then s.fence + 1 end
        from silenced s
        where t.ctid = s.place
        returning t.id
    ),
    extended as (
        update dueline.due d
        set lease_until = greatest(d.lease_until, clock_timestamp() + lease), unanswered = 0, fence = d.fence + 1
        from judged j
        where d.id = j.id and j.verdict = 'working' and d.lease_until is not null
    ),
    -- Told once: a duplicate finds the key done.
    noted as (
        insert into dueline.task_event (task_id, step, from_state, to_state, generation, attempt, detail)
        select j.id, 'effect_of_old_generation', j.state,
               case j.verdict when 'old_generation' then 'done' else j.state end, j.generation, j.attempt,
               jsonb_build_object('done_in_generation', j.said_generation)
        from judged j
        where j.verdict = 'old_generation' or (j.verdict = 'without_task' and j.key_hash = any (fresh))
    )
    select array_agg(j.ord) as ords, array_agg(j.verdict) as verdicts,
           count(*) filter (where j.verdict in ('done', 'old_generation', 'skipped')) as settled,
           (select count(*) from silenced) as silenced, (select count(*) from written) as written
    into n
    from judged j;
    if n.settled <> n.silenced or n.settled <> n.written then
        raise exception 'task, alarm and key do not agree: % tasks, % alarms, % written',
                        n.settled, n.silenced, n.written using errcode = 'DLX01';
    end if;

    if cardinality(n.ords) = cardinality(ids) then
        verdicts := array(select v.verdict from unnest(n.ords, n.verdicts) v (ord, verdict) order by v.ord);
    else
        foreach i in array speaking loop
            verdicts[i] := 'locked';
        end loop;
        for i in 1 .. coalesce(cardinality(n.ords), 0) loop
            verdicts[n.ords[i]] := n.verdicts[i];
        end loop;
    end if;

    failed := array(select o from generate_series(1, cardinality(ids)) o where verdicts[o] in ('retry', 'dead'));
    if failed <> '{}' then
        became := dueline.record_failures(
            array(select ids[o] from unnest(failed) o), array(select reasons[o] from unnest(failed) o),
            array(select outcomes[o] = 'dead' from unnest(failed) o),
            array(select retry_after_ms[o] from unnest(failed) o));
        for i in 1 .. cardinality(failed) loop
            verdicts[failed[i]] := became[i];
        end loop;
    end if;
    return verdicts;
end $$;
