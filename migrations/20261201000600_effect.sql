-- The effect of a batch, kind `here`: dedupe → business rows → task → due, in one transaction, in this order of locks.
--
-- A handler that is a statement needs one round trip for all of it (`effect`), and nobody outside of the server can
-- stop while it holds a business row. A handler in Rust has the transaction between `admit` and `settle`.
--
-- The four that run with every batch are not SECURITY DEFINER and set no search_path, each of which would be paid for
-- with every batch: only relays' and consumers' own logins may call them, and those have the rights. Such a function
-- could not take on the handlers' role either; and a handler's tables are found by the session's search_path. What
-- they cost is that of setting up, so what is rare (duplicates, early, skipped) is worked out only when it is there.
--
-- Errors of our own, beside those of the handler and of the server:
--   DLM01  tasks have moved; the detail names them. The rest may be tried again without them
--   DLC01  the handler broke its contract
--   DLX01  task, alarm and key do not agree

-- Steps 1 and 2: judges each message by its row, without locks, then enters the ready ones in the dedupe table, in
-- hash order, so that two batches with common keys wait for each other and never in a circle.
-- Answers the ordinals that are not simply ready, null when there are none: `known` (the key is finished already),
-- `early` (the database's clock says not yet), `stale` (the row has gone on, or is gone).
create function dueline.admit(ids bigint[], hashes uuid[], generations integer[], attempts integer[],
                              out known bigint[], out early bigint[], out stale bigint[])
language plpgsql volatile
as $$
begin
    with message as materialized (
        select m.ord, m.id, m.key_hash, m.generation, m.attempt
        from unnest(admit.ids, admit.hashes, admit.generations, admit.attempts)
             with ordinality as m (id, key_hash, generation, attempt, ord)
    ),
    judged as materialized (
        select m.ord, m.key_hash, m.generation, m.attempt,
               case when t.id is null then 'stale'
                    when t.due_at > clock_timestamp() then 'early'
                    else 'ready' end as verdict
        from message m
        left join dueline.task t
               on t.id = m.id and t.key_hash = m.key_hash and t.generation = m.generation
              and t.attempt = m.attempt and t.state = 'live'
    ),
    entered as (
        insert into dueline.dedupe as d (key_hash, finished_at, generation, attempt, outcome)
        select j.key_hash, clock_timestamp(), j.generation, j.attempt, 'done'
        from judged j
        where j.verdict = 'ready'
        order by j.key_hash
        on conflict (key_hash) do nothing
        returning d.key_hash
    ),
    verdict as (
        select count(*) filter (where j.verdict = 'ready') as ready,
               array_agg(j.ord) filter (where j.verdict = 'early') as early,
               array_agg(j.ord) filter (where j.verdict = 'stale') as stale
        from judged j
    )
    -- Which keys did not come back is worked out only when some did not. Added up, not joined: nobody knows how many
    -- rows a set has, and a join of two would compare each row with each.
    select (select array_agg(k.ord)
            from (select max(u.ord) as ord
                  from (select j.ord, j.key_hash from judged j where j.verdict = 'ready'
                        union all
                        select null, e.key_hash from entered e) u
                  where (select count(*) from entered) < v.ready
                  group by u.key_hash
                  having count(*) = 1) k),
           v.early, v.stale
    into known, early, stale
    from verdict v;
end $$;

-- Step 4: locks the task rows in id order and only those that nobody holds, settles them, deletes their alarms, and
-- forgets the keys of the skipped ones, which may be scheduled again. Outcomes: done, skipped, and known, which is
-- settled from the dedupe row that an earlier effect left.
-- Answers when, and the ids that were settled, null when it was all of them: the others have moved.
-- Nothing that is written here is indexed, so that the update can be HOT. It goes by the place (`ctid`) of the row
-- just locked, which nobody can move; one that was moved before the lock counts as moved.
create function dueline.settle(ids bigint[], hashes uuid[], generations integer[], attempts integer[],
                               published timestamptz[], outcomes text[],
                               out finished_at timestamptz, out settled bigint[])
language plpgsql volatile
as $$
declare
    n record;
begin
    with message as materialized (
        select m.id, m.key_hash, m.generation, m.attempt, m.published_at, m.outcome
        from unnest(settle.ids, settle.hashes, settle.generations, settle.attempts, settle.published,
                    settle.outcomes)
             as m (id, key_hash, generation, attempt, published_at, outcome)
    ),
    locked as materialized (
        select t.ctid as place, t.id, t.key_hash, m.published_at, m.outcome
        from message m
        join dueline.task t on t.id = m.id
        where t.key_hash = m.key_hash and t.generation = m.generation and t.attempt = m.attempt
          and t.state = 'live'
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
    written as (
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
        select w.id, 'settle', 'live', 'done', w.generation, w.attempt, '{"from": "dedupe"}'
        from written w
        where w.outcome = 'known'
    )
    select (select count(*) from locked) as locked,
           (select count(*) from locked l where l.outcome = 'skipped') as skipped,
           (select count(*) from silenced) as silenced,
           (select count(*) from forgotten) as forgotten,
           case when count(*) < cardinality(settle.ids) then coalesce(array_agg(w.id), '{}') end as ids,
           max(w.finished_at) as finished_at
    into n
    from written w;
    if n.locked <> n.silenced or n.skipped <> n.forgotten then
        raise exception 'task, alarm and key do not agree: % tasks, % alarms; % skipped, % keys',
                        n.locked, n.silenced, n.skipped, n.forgotten using errcode = 'DLX01';
    end if;
    finished_at := n.finished_at;
    settled := n.ids;
end $$;

-- The database's clock says not yet: returns the alarms. No attempt is counted; the fence goes up, as with every
-- write.
create function dueline.return_early(ids bigint[], generations integer[], attempts integer[]) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp
as $$
begin
    with returned as materialized (
        select d.id, t.due_at
        from unnest(return_early.ids, return_early.generations, return_early.attempts)
             as m (id, generation, attempt)
        join dueline.due d on d.id = m.id
        join dueline.task t on t.id = m.id
        where d.generation = m.generation and d.attempt = m.attempt and d.lease_until is not null
        order by d.id
        for update of d
    )
    update dueline.due d
    set lease_until = null, claimed_at = null, claim_epoch = null, extensions = 0,
        next_at = greatest(d.next_at, r.due_at, clock_timestamp()),
        fence = d.fence + 1
    from returned r
    where d.id = r.id;
end $$;

-- How many duplicates each layer stopped.
create function dueline.count_stops(queue text, layers text[], counts bigint[]) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp
as $$
begin
    insert into dueline.duplicate_stop (queue, layer, n)
    select count_stops.queue, s.layer, s.n
    from unnest(count_stops.layers, count_stops.counts) as s (layer, n)
    where s.n > 0;
end $$;

-- The ordinals that a handler's statement returns, as outcomes of its n tasks. The statement is somebody else's: it
-- runs as their role, planned as the planner likes, and must return nothing but the ordinals that it was given, each
-- at most once.
create function dueline.handle(statement text, handler_role text, ords integer[], keys text[], payloads jsonb[])
returns text[]
language plpgsql volatile
as $$
declare
    before text := current_setting('role');
    n integer := cardinality(keys);
    outcomes text[] := array_fill('skipped'::text, array[n]);
    ord bigint;
begin
    perform set_config('enable_seqscan', 'on', true), set_config('enable_bitmapscan', 'on', true),
            set_config('enable_hashjoin', 'on', true), set_config('enable_mergejoin', 'on', true),
            set_config('plan_cache_mode', 'force_custom_plan', true), set_config('role', handler_role, true);
    for ord in execute statement using ords[1:n], keys, payloads loop
        if ord is null or ord < 1 or ord > n then
            raise exception 'the statement returned %, which is no `ord` of the batch (1 to %)',
                            coalesce(ord::text, 'null'), n using errcode = 'DLC01';
        elsif outcomes[ord] = 'done' then
            raise exception 'the statement returned the `ord` % twice: more than one row was changed for one task; '
                            'make its condition unique, or aggregate (`select distinct`)', ord
                using errcode = 'DLC01';
        end if;
        outcomes[ord] := 'done';
    end loop;
    perform set_config('role', before, true), set_config('plan_cache_mode', 'force_generic_plan', true),
            set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
            set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true);
    return outcomes;
end $$;

-- All steps, for a handler that is a statement. The messages come sorted by key; at most one for each task.
-- `ords` counts them from 1. `repeated` duplicates were stopped by the caller, and `moved_before` tasks moved in an
-- earlier run.
-- Answers ordinals as `admit` does; `moved` are known ones that nobody could settle now; everything else is done,
-- unless `skipped`. Raises DLM01 when a task of the handler's has moved: then nothing of the batch has happened.
create function dueline.effect(queue text, ords integer[], ids bigint[], hashes uuid[], generations integer[],
                               attempts integer[], published timestamptz[], keys text[], payloads jsonb[],
                               statement text, handler_role text, repeated bigint, moved_before bigint,
                               out known bigint[], out early bigint[], out stale bigint[], out moved bigint[],
                               out skipped bigint[], out finished_at timestamptz)
language plpgsql volatile
as $$
declare
    others bigint[];
    ready bigint[];
    outcomes text[];
    settled bigint[];
begin
    select a.known, a.early, a.stale into known, early, stale
    from dueline.admit(ids, hashes, generations, attempts) a;
    if known is null and early is null and stale is null then
        outcomes := dueline.handle(statement, handler_role, ords, keys, payloads);
        select s.finished_at, s.settled into finished_at, settled
        from dueline.settle(ids, hashes, generations, attempts, published, outcomes) s;
        if settled is not null then
            raise exception 'tasks have moved' using errcode = 'DLM01',
                detail = array(select i from unnest(ids) i where i <> all (settled));
        elsif 'skipped' = any (outcomes) then
            skipped := array(select o.ord from unnest(outcomes) with ordinality o (outcome, ord)
                             where o.outcome = 'skipped');
        end if;
        if repeated + moved_before > 0 then
            perform dueline.count_stops(queue, '{batch,settle}', array[repeated, moved_before]);
        end if;
        return;
    end if;

    others := coalesce(known, '{}') || coalesce(early, '{}') || coalesce(stale, '{}');
    ready := array(select o from unnest(ords) o where o <> all (others));
    if ready <> '{}' then
        outcomes := dueline.handle(statement, handler_role, ords, array(select keys[o] from unnest(ready) o),
                                   array(select payloads[o] from unnest(ready) o));
        skipped := array(select o.ord from unnest(ready, outcomes) o (ord, outcome) where o.outcome = 'skipped');
    end if;
    others := ready || coalesce(known, '{}');
    if others <> '{}' then
        outcomes := coalesce(outcomes, '{}') || array_fill('known'::text, array[coalesce(cardinality(known), 0)]);
        select s.finished_at, s.settled into finished_at, settled
        from dueline.settle(
            array(select ids[o] from unnest(others) o), array(select hashes[o] from unnest(others) o),
            array(select generations[o] from unnest(others) o), array(select attempts[o] from unnest(others) o),
            array(select published[o] from unnest(others) o), outcomes) s;
    end if;
    if settled is not null then
        others := array(select ids[o] from unnest(ready) o where ids[o] <> all (settled));
        if others <> '{}' then
            raise exception 'tasks have moved' using errcode = 'DLM01', detail = others;
        end if;
        moved := array(select o from unnest(known) o where ids[o] <> all (settled));
    end if;
    if early is not null then
        perform dueline.return_early(array(select ids[o] from unnest(early) o),
                                     array(select generations[o] from unnest(early) o),
                                     array(select attempts[o] from unnest(early) o));
    end if;
    perform dueline.count_stops(queue, '{batch,guard,dedupe,settle}',
                                array[repeated, coalesce(cardinality(stale), 0), coalesce(cardinality(known), 0),
                                      moved_before]);
end $$;
