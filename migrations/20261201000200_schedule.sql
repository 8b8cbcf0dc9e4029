-- schedule, schedule_many, reschedule: a task by its business key, in the caller's own transaction.

-- The task row as a receipt.
create function dueline.receipt_of(receipt text, task dueline.task) returns dueline.receipt
language plpgsql immutable parallel safe security definer
set search_path = pg_catalog, dueline, pg_temp
as $$
begin
    return row(receipt, task.id, task.kind, task.key, task.state, task.generation, task.due_at, task.tier)::dueline.receipt;
end $$;

-- Gives a task that its caller has locked a new deadline, from any state short of done.
create function dueline.move(task dueline.task, effect text, due_at timestamptz, tier text, lane integer,
                             payload jsonb, headers jsonb, detail jsonb) returns dueline.receipt
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    found text := dueline.under_way(task, effect);
begin
    if found = 'finished' then
        return dueline.receipt_of('finished', task);
    elsif found = 'running' then
        perform dueline.note(task, 'reschedule_refused', task.state, task.generation, task.attempt,
                             detail || jsonb_build_object('asked_due_at', due_at, 'receipt', found));
        return dueline.receipt_of('running', task);
    end if;
    found := case found when 'free' then 'rescheduled' else found end;
    task := dueline.make_live(task, 'reschedule', due_at, tier, lane, payload, headers,
                              detail || jsonb_build_object('receipt', found));
    return dueline.receipt_of(found, task);
end $$;

-- `schedule` of a key that is taken: what `on_conflict` says. Null when the row has vanished meanwhile.
-- A separate statement from the insert on purpose: one statement that does both has one snapshot, and returns
-- nothing for a key that was committed after it began.
create function dueline.meet(key_hash uuid, kind text, key text, effect text, on_conflict text,
                             due_at timestamptz, tier text, lane integer, payload jsonb, headers jsonb)
returns dueline.receipt
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    t dueline.task;
begin
    select * into t from dueline.task x where x.key_hash = meet.key_hash;
    if not found then
        return null;
    elsif t.kind <> kind or t.key <> key then
        perform dueline.raise_collision(t.id);
    elsif on_conflict = 'error' then
        raise exception 'task % of kind % with this key is there already, it is %', t.id, kind, t.state
            using errcode = 'unique_violation', detail = 'state=' || t.state,
                  hint = 'on_conflict => ''keep'' returns it as it is, ''reschedule'' moves its deadline';
    end if;
    if on_conflict = 'reschedule' or t.state in ('cancelled', 'skipped') then
        select * into t from dueline.task x where x.id = t.id and x.key_hash = meet.key_hash for update;
        if not found then
            return null;
        elsif on_conflict = 'reschedule' then
            return dueline.move(t, effect, due_at, tier, lane, payload, headers, '{}');
        elsif t.state in ('cancelled', 'skipped') then
            t := dueline.make_live(t, 'open', due_at, tier, lane, payload, headers, '{}');
            return dueline.receipt_of('reopened', t);
        end if;
    end if;
    return dueline.receipt_of(case t.state when 'live' then 'kept' else 'finished' end, t);
end $$;

-- Schedules one task. Exactly one of due_at and delay; a delay runs from event_at, or from now.
-- `jitter` moves the deadline later by a uniformly random part of it (T5).
-- Called once a transaction, its cost is that of setting up: of each setting, statement and expression that it comes
-- by. Hence no `plan_cache_mode` (a generic plan never costs more for statements as plain as these), a route of one
-- row, and nothing worked out that was not asked for.
create function dueline.schedule(kind text, key text, due_at timestamptz default null,
                                 delay interval default null, event_at timestamptz default null,
                                 payload jsonb default null, headers jsonb default null,
                                 on_conflict text default 'keep', jitter interval default null)
returns dueline.receipt
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp
as $$
#variable_conflict use_column
declare
    way dueline.route;
    hash uuid;
    nth integer;
    lane integer;
    wrong text;
    deadline timestamptz;
    new_id bigint;
    answer dueline.receipt;
begin
    if on_conflict is null or on_conflict not in ('keep', 'reschedule', 'error') then
        perform dueline.raise_problem('on_conflict is not known|pass keep, reschedule or error');
    end if;
    -- The parts of `dueline.route()`, for a plan of one look-up.
    select * into way from dueline.route r where r.kind = schedule.kind and r.tiers <> '{}';
    if not found then
        perform dueline.raise_no_route(kind);
    end if;
    wrong := dueline.problem(key, due_at, delay, event_at, payload, headers, jitter, way.max_payload_bytes);
    if wrong is not null then
        perform dueline.raise_problem(wrong);
    end if;
    hash := dueline.key_hash(way.queue, kind, key);
    nth := dueline.nth_tier(dueline.asked_delay(due_at, delay, event_at), way.beyond);
    lane := dueline.nth_lane(nth, hash, way.slots, way.lanes);
    if lane is null then
        perform dueline.raise_no_lane(way.queue, way.tiers[nth]);
    end if;
    deadline := dueline.deadline(due_at, delay, event_at);
    if jitter is not null then
        deadline := dueline.spread(deadline, jitter);
    end if;
    -- A key's row can vanish (retention) between the insert that met it and the look at it: then insert again.
    for round in 1 .. 5 loop
        -- Two statements: one with a CTE takes longer than both.
        insert into dueline.task (key_hash, due_at, kind, key, tier, payload, headers)
        values (hash, deadline, schedule.kind, schedule.key, way.tiers[nth], schedule.payload, schedule.headers)
        on conflict (key_hash) do nothing
        returning id into new_id;
        if found then
            insert into dueline.due (id, next_at, lane, generation, attempt)
            values (new_id, dueline.alarm_at(deadline), lane, 0, 0);
            return row('scheduled', new_id, kind, key, 'live', 0, deadline, way.tiers[nth])::dueline.receipt;
        end if;
        answer := dueline.meet(hash, kind, key, way.effect, on_conflict, deadline, way.tiers[nth], lane,
                               payload, headers);
        if answer.receipt is not null then
            return answer;
        end if;
    end loop;
    raise exception 'the task comes and goes' using errcode = 'serialization_failure',
        hint = 'try the transaction again';
end $$;

-- Moves a task to a new deadline; it runs as if scheduled anew, with attempt 0, and messages of the old deadline
-- are dropped. payload null keeps the one it has.
create function dueline.reschedule(kind text, key text, due_at timestamptz default null,
                                   delay interval default null, event_at timestamptz default null,
                                   payload jsonb default null, reason text default null)
returns dueline.receipt
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    asked interval := dueline.asked_delay(due_at, delay, event_at);
    way record;
    wrong text;
    t dueline.task;
begin
    select r.* into way from dueline.route(reschedule.kind, reschedule.key, asked) r;
    if not found then
        perform dueline.raise_no_route(kind);
    end if;
    wrong := dueline.problem(key, due_at, delay, event_at, payload, null, null, way.max_payload_bytes);
    if wrong is not null then
        perform dueline.raise_problem(wrong);
    elsif way.lane is null then
        perform dueline.raise_no_lane(way.queue, way.tier);
    end if;
    select * into t from dueline.task x where x.key_hash = way.key_hash for update;
    if not found then
        return row('not_found', null, kind, key, null, null, null, null)::dueline.receipt;
    elsif t.kind <> reschedule.kind or t.key <> reschedule.key then
        perform dueline.raise_collision(t.id);
    end if;
    return dueline.move(t, way.effect, dueline.deadline(due_at, delay, event_at), way.tier, way.lane,
                        coalesce(payload, t.payload), t.headers,
                        jsonb_build_object('reason', left(reason, 1000)));
end $$;

-- Says which element of a call with many is wrong, and why.
create function dueline.first_problem(keys text[], due_at timestamptz[], delays interval[], event_at timestamptz,
                                      payloads jsonb[], headers jsonb[], jitter interval,
                                      max_payload_bytes integer) returns text
language sql stable security definer set search_path = pg_catalog, dueline, pg_temp
as $$
    select format('element %s: %s', i.ord, w.problem)
    from unnest(keys, due_at, delays, payloads, headers)
         with ordinality i (key, due_at, delay, payload, headers, ord)
    cross join lateral (select dueline.problem(
        i.key, i.due_at, i.delay, first_problem.event_at, i.payload, i.headers, jitter,
        max_payload_bytes)) w (problem)
    where w.problem is not null
    order by i.ord
    limit 1
$$;

-- An array of a call with many, with one element per key.
create function dueline.stretched(name text, items anyarray, n integer) returns anyarray
language plpgsql stable security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
begin
    if items is null or cardinality(items) = n then
        return items;
    elsif cardinality(items) = 1 then
        -- Not by its subscript: in two dimensions it has two.
        return array_fill((select item from unnest(items) as item), array[n]);
    end if;
    perform dueline.raise_problem(format('%s has %s elements for %s keys|pass one for each key, one for all, '
                                         'or null', name, cardinality(items), n));
end $$;

-- Schedules many tasks of one kind at once. Every array has one element per key, or one for all, or is null.
-- As if `schedule` were called for one key after another, and answered in no particular order: see `ord`.
-- The new rows are inserted by one statement in the order of their hash, so that two callers with common keys wait
-- for one another in that order; what was there already is then looked at one by one, in the same order.
create function dueline.schedule_many(kind text, keys text[], due_at timestamptz[] default null,
                                      delays interval[] default null, event_at timestamptz default null,
                                      payloads jsonb[] default null, headers jsonb[] default null,
                                      on_conflict text default 'keep', jitter interval default null)
returns setof dueline.numbered_receipt
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    n integer := coalesce(cardinality(keys), 0);
    way record;
    wrong text;
    made_ords integer[];
    made_keys text[];
    made_ids bigint[];
    made_due timestamptz[];
    made_tiers text[];
    each record;
    answer dueline.receipt;
begin
    if on_conflict is null or on_conflict not in ('keep', 'reschedule', 'error') then
        perform dueline.raise_problem('on_conflict is not known|pass keep, reschedule or error');
    end if;
    select r.* into way from dueline.route r where r.kind = schedule_many.kind and r.tiers <> '{}';
    if not found then
        perform dueline.raise_no_route(kind);
    end if;
    due_at := dueline.stretched('due_at', due_at, n);
    delays := dueline.stretched('delays', delays, n);
    payloads := dueline.stretched('payloads', payloads, n);
    headers := dueline.stretched('headers', headers, n);
    wrong := dueline.first_problem(keys, due_at, delays, event_at, payloads, headers, jitter,
                                   way.max_payload_bytes);
    if wrong is not null then
        perform dueline.raise_problem(wrong);
    end if;
    -- generate_series is there for the planner, which takes it for 1,000 rows and an unnest for ten: at ten it
    -- would join `made` and `input` row by row.
    with input as materialized (
        select distinct on (h.key_hash)
               i.ord, i.key, i.payload, i.headers, h.key_hash,
               dueline.spread(dueline.deadline(i.due_at, i.delay, schedule_many.event_at), jitter) as due_at,
               dueline.nth_tier(dueline.asked_delay(i.due_at, i.delay, schedule_many.event_at), way.beyond) as nth
        from rows from (unnest(keys), unnest(due_at), unnest(delays), unnest(payloads), unnest(headers),
                        generate_series(1, n)) i (key, due_at, delay, payload, headers, ord)
        cross join lateral (select dueline.key_hash(way.queue, schedule_many.kind, i.key)) h (key_hash)
        order by h.key_hash, i.ord
    ),
    made as (
        insert into dueline.task (key_hash, due_at, kind, key, tier, payload, headers)
        select i.key_hash, i.due_at, schedule_many.kind, i.key, way.tiers[i.nth], i.payload, i.headers
        from input i
        order by i.key_hash
        on conflict (key_hash) do nothing
        returning id, key_hash, due_at, tier, key
    ),
    alarms as (
        insert into dueline.due (id, next_at, lane, generation, attempt)
        -- Without a lane the insert would fail on a null: `raise_no_lane` says it better.
        select m.id, dueline.alarm_at(m.due_at),
               coalesce(dueline.nth_lane(array_position(way.tiers, m.tier), m.key_hash, way.slots, way.lanes),
                        dueline.raise_no_lane(way.queue, m.tier)), 0, 0
        from made m
    )
    select array_agg(i.ord), array_agg(m.key), array_agg(m.id), array_agg(m.due_at), array_agg(m.tier)
    into made_ords, made_keys, made_ids, made_due, made_tiers
    from made m
    join input i on i.key_hash = m.key_hash;
    return query
        select m.ord, 'scheduled', m.id, schedule_many.kind, m.key, 'live', 0, m.due_at, m.tier
        from unnest(made_ords, made_keys, made_ids, made_due, made_tiers) m (ord, key, id, due_at, tier);
    if cardinality(made_ords) = n then
        return;
    end if;
    for each in
        select m.ord::integer as ord, m.key, m.due_at, m.delay, m.payload, m.headers
        from unnest(keys, due_at, delays, payloads, headers)
             with ordinality m (key, due_at, delay, payload, headers, ord)
        where m.ord <> all (coalesce(made_ords, '{}'))
        order by dueline.key_hash(way.queue, schedule_many.kind, m.key), m.ord
    loop
        answer := dueline.schedule(kind, each.key, each.due_at, each.delay, event_at, each.payload,
                                   each.headers, on_conflict, jitter);
        return next row(each.ord, answer.receipt, answer.id, answer.kind, answer.key, answer.state,
                        answer.generation, answer.due_at, answer.tier)::dueline.numbered_receipt;
    end loop;
end $$;
