-- What the SQL functions share. Rules that hold for all of them:
--
-- * A function that reads or writes tables is SECURITY DEFINER, owned by dueline_owner, with a fixed
--   search_path. One without a table is a bare expression whose names were bound when it was created, so that
--   the planner can inline it into the hot statements.
-- * Those in PL/pgSQL keep their plans for the session (SQL ones are planned anew at every call), and generic
--   ones: planning costs far more here than it can gain, and a test reads the very plan that runs.
-- * An alarm is made in two places only: `schedule` and `schedule_many` insert that of a new task, and
--   `make_live` gives one to a task that exists. Both take the lane from `route` or `lane_for`, and the instant
--   from `alarm_at`.
-- * Locks are taken task → due, and several keys are taken in the order of their hash.

do $$ begin
    -- The key hash is over UTF-8, as every client computes it.
    if current_setting('server_encoding') <> 'UTF8' then
        raise exception 'dueline needs a database in UTF8, this one is in %', current_setting('server_encoding')
            using hint = 'create database … encoding ''UTF8'' template template0';
    end if;
end $$;

-- The answer of every function that changes one task. Receipts:
--   scheduled   a new task
--   kept        it was there already and is live; nothing was changed
--   reopened    it was cancelled or skipped and is live again, as asked for now
--   rescheduled it has the new deadline; nothing of the old one can still run
--   cancelled   it will not run
--   published_will_be_dropped  as asked (cancelled or rescheduled); a message is under way and will be dropped
--   may_have_run               as asked, but an earlier try elsewhere may have had its effect
--   running     its call elsewhere has begun: nothing was changed; a wish to cancel is remembered
--   finished    nothing was changed: the effect happened, or there was nothing to do, or (schedule) it is dead
--   not_found   there is no such task
--   replayed, resolved, discarded, stale, gone, refused   a person's verdict on a dead task
create type dueline.receipt as (
    receipt     text,
    id          bigint,
    kind        text,
    key         text,
    state       text,
    generation  integer,
    due_at      timestamptz,
    tier        text
);

-- The same for the n-th key of a call with many.
create type dueline.numbered_receipt as (
    ord         integer,
    receipt     text,
    id          bigint,
    kind        text,
    key         text,
    state       text,
    generation  integer,
    due_at      timestamptz,
    tier        text
);

-- The first 16 bytes of SHA-256 over the length-prefixed queue, kind and key (dueline_core::KeyHash).
-- Doubling the backslashes makes the cast to bytea take every byte as it is; unlike convert_to it is immutable,
-- so that this can be inlined.
create function dueline.key_hash(queue text, kind text, key text) returns uuid
language sql immutable parallel safe
return encode(substr(sha256(
    int4send(octet_length(queue)) || replace(queue, '\', '\\')::bytea ||
    int4send(octet_length(kind)) || replace(kind, '\', '\\')::bytea ||
    int4send(octet_length(key)) || replace(key, '\', '\\')::bytea), 1, 16), 'hex')::uuid;

-- The slot of a key among the slots of its queue (dueline_core::KeyHash::slot).
create function dueline.slot_for(hash uuid, slots integer) returns integer
language sql immutable parallel safe
return (get_byte(uuid_send(hash), 0) * 256 + get_byte(uuid_send(hash), 1)) % slots;

-- The deadline as asked for. A delay runs from the business event (T3), and in UTC: a day has 24 hours whatever
-- the session's time zone is.
create function dueline.deadline(due_at timestamptz, delay interval, event_at timestamptz) returns timestamptz
language sql volatile parallel safe
return coalesce(due_at, (coalesce(event_at, clock_timestamp()) at time zone 'UTC' + delay) at time zone 'UTC');

-- The deadline moved later by a uniformly random part of `jitter` (T5). Names `instant` once: an argument that is
-- volatile and used twice would keep this from being inlined.
create function dueline.spread(instant timestamptz, jitter interval) returns timestamptz
language sql volatile parallel safe
return (instant at time zone 'UTC' + coalesce(random() * jitter, interval '0')) at time zone 'UTC';

-- The requested delay, which chooses the tier. Null for what `problem` refuses.
create function dueline.asked_delay(due_at timestamptz, delay interval, event_at timestamptz) returns interval
language sql volatile parallel safe
return coalesce(delay, case when isfinite(due_at) and isfinite(event_at) is not false
                            then due_at - coalesce(event_at, clock_timestamp()) end);

-- When an alarm rings: never in the past of its write, or a scan that reads back one window would miss it.
create function dueline.alarm_at(instant timestamptz) returns timestamptz
language sql volatile parallel safe
return greatest(instant, clock_timestamp());

-- Which of a route's tiers covers this delay: the first that does, else the longest.
create function dueline.nth_tier(delay interval, beyond interval[]) returns integer
language sql immutable parallel safe
return least(width_bucket(delay, beyond) + 1, cardinality(beyond));

-- The lane of a key in the n-th tier of its route; null when its row is missing.
create function dueline.nth_lane(nth integer, hash uuid, slots integer, lanes integer[]) returns integer
language sql immutable parallel safe
return lanes[(nth - 1) * slots + dueline.slot_for(hash, slots) + 1];

-- Where a task of this kind and key with this delay belongs: no row when the kind is unknown or its queue has no
-- tier; lane is null when its row is missing. A set-returning expression without SECURITY DEFINER, so that it is
-- inlined into its callers, which are.
create function dueline.route(kind text, key text, delay interval)
returns table (queue text, effect text, max_payload_bytes integer, key_hash uuid, tier text, lane integer)
language sql stable
begin atomic
    select r.queue, r.effect, r.max_payload_bytes, h.key_hash, r.tiers[dueline.nth_tier(route.delay, r.beyond)],
           dueline.nth_lane(dueline.nth_tier(route.delay, r.beyond), h.key_hash, r.slots, r.lanes)
    from dueline.route r
    -- `offset 0` keeps the hash from being computed wherever it is named.
    cross join lateral (select dueline.key_hash(r.queue, r.kind, route.key) offset 0) h (key_hash)
    where r.kind = route.kind and r.tiers <> '{}';
end;

-- The tier of a requested delay (dueline_core::tier::tier_for); null when the queue has none.
create function dueline.tier_for(queue text, delay interval) returns text
language plpgsql stable security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return (
        select t.name
        from dueline.tier t
        where t.queue = tier_for.queue
        order by t.max_delay < tier_for.delay,
                 case when t.max_delay < tier_for.delay then -t.max_delay else t.max_delay end,
                 t.rank
        limit 1
    );
end $$;

-- The lane of a key in a tier of its queue; an error when `dueline apply` has not made it.
create function dueline.lane_for(queue text, tier text, hash uuid) returns integer
language plpgsql stable security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    found_lane integer;
begin
    select l.lane into found_lane
    from dueline.lane l
    join dueline.queue q on q.name = l.queue
    where l.queue = lane_for.queue and l.tier = lane_for.tier
      and l.slot = dueline.slot_for(lane_for.hash, q.slots);
    if found_lane is null then
        perform dueline.raise_no_lane(queue, tier);
    end if;
    return found_lane;
end $$;

-- What is wrong with a task's own headers, or null. They travel beside the envelope's, where the last header of
-- a name wins: the names that the envelope and the dead letter use are therefore refused.
create function dueline.header_problem(headers jsonb) returns text
language plpgsql immutable security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    bad text;
begin
    if jsonb_typeof(headers) <> 'object' then
        return 'headers are not a JSON object|pass an object whose values are strings';
    end if;
    if (select count(*) from jsonb_object_keys(headers)) > 32 then
        return 'there are more than 32 headers|put data into the payload';
    end if;
    -- The domain's bound, said in words. Each of them may be in order, and all of them too much.
    if pg_column_size(headers) > 16384 then
        return format('the headers have %s bytes together|they may have 16384: put data into the payload',
                      pg_column_size(headers));
    end if;
    select h.name into bad from jsonb_each(headers) h (name, value)
    where jsonb_typeof(h.value) <> 'string' or octet_length(h.value #>> '{}') > 4096 limit 1;
    if found then
        return format('the value of header %L is not a string of at most 4096 bytes|quote it, or shorten it',
                      left(bad, 80));
    end if;
    select h.name into bad from jsonb_object_keys(headers) h (name) where h.name !~ '^[!-~]{1,128}$' limit 1;
    if found then
        return format('header name %L is not allowed|use 1 to 128 printable ASCII characters without blanks',
                      left(bad, 80));
    end if;
    select h.name into bad from jsonb_object_keys(headers) h (name)
    where h.name ~* '^(ce_|dueline-|content-type$)' limit 1;
    if found then
        return format('header name %L is reserved|names that begin with ce_ or dueline- and content-type are '
                      'dueline''s own', left(bad, 80));
    end if;
    return null;
end $$;

-- Whether a span reaches about as far as it seems to. Spans are compared as if every month had 30 days, and parts of
-- different signs cancel out: 70,000,000 months less 2,100,000,000 days compares as nothing, and is out of range
-- once it is added to an instant.
create function dueline.is_plain(span interval) returns boolean
language sql immutable parallel safe
return abs(date_part('year', span)) <= 1000 and abs(date_part('day', span)) <= 400000;

-- What is wrong with a request, as 'message|hint', or null. The one list of rules for one task and for many.
create function dueline.problem(key text, due_at timestamptz, delay interval, event_at timestamptz, payload jsonb,
                                headers jsonb, jitter interval, max_payload_bytes integer) returns text
language sql immutable
return case
    when key is null or key = '' then 'the key is empty|pass the business key of the task'
    when octet_length(key) > 512
        then 'the key has ' || octet_length(key)::text || ' bytes|a key has at most 512 bytes'
    when due_at is null and delay is null
        then 'neither due_at nor delay is given|pass exactly one of them'
    when due_at is not null and delay is not null
        then 'both due_at and delay are given|pass exactly one of them'
    -- The jitter comes on top: what comes of it must be within the column's range.
    when not (due_at >= timestamptz '0001-01-01 00:00:00+00' and due_at < timestamptz '9989-01-01 00:00:00+00')
        then 'due_at is out of range|pass an instant between the years 1 and 9988; infinity is none'
    when not (event_at >= timestamptz '0001-01-01 00:00:00+00' and event_at < timestamptz '9000-01-01 00:00:00+00')
        then 'event_at is out of range|pass the instant of the business event, between the years 1 and 8999'
    when delay < interval '0'
        then 'the delay is negative|pass due_at for an instant in the past: it is due at once'
    when delay > interval '900 years' or not dueline.is_plain(delay)
        then 'the delay is longer than 900 years, or a part of it is|pass a shorter one'
    when not (jitter >= interval '0' and jitter <= interval '10 years' and dueline.is_plain(jitter))
        then 'jitter is out of range|pass a window from 0 to 10 years'
    when octet_length(payload::text) > max_payload_bytes
        then 'the payload has ' || octet_length(payload::text)::text || ' bytes, its kind allows '
             || max_payload_bytes::text || '|keep large objects in the business tables and pass their key, or raise max_payload_bytes '
             || 'of the kind'
    when headers is not null then dueline.header_problem(headers)
end;

create function dueline.raise_problem(problem text, prefix text default '') returns void
language plpgsql security definer set search_path = pg_catalog, dueline, pg_temp
as $$
begin
    raise exception using
        errcode = 'invalid_parameter_value',
        message = prefix || split_part(problem, '|', 1),
        hint = split_part(problem, '|', 2);
end $$;

-- The kind is unknown, or its queue has no tiers: says which, and names the nearest kind by shared letter pairs.
create function dueline.raise_no_route(kind text) returns void
language plpgsql security definer set search_path = pg_catalog, dueline, pg_temp
as $$
declare
    nearest text;
begin
    if exists (select from dueline.kind k where k.name = raise_no_route.kind) then
        raise exception 'the queue of kind % has no tiers', kind
            using errcode = 'object_not_in_prerequisite_state',
                  hint = 'run `dueline apply` with the configuration that names them';
    end if;
    with asked as (
        select distinct substr(lower(left(kind, 63)), i, 2) as pair
        from generate_series(1, greatest(char_length(left(kind, 63)) - 1, 1)) i
    )
    select k.name into nearest
    from dueline.kind k
    cross join lateral (
        select 2.0 * count(a.pair) / (count(*) + (select count(*) from asked)) as likeness
        from (select distinct substr(k.name, i, 2) as pair
              from generate_series(1, greatest(char_length(k.name) - 1, 1)) i) p
        left join asked a on a.pair = p.pair
    ) s
    where s.likeness >= 0.4
    order by s.likeness desc, k.name
    limit 1;
    raise exception 'unknown kind %', coalesce(quote_literal(left(kind, 80)), 'null')
        using errcode = 'invalid_parameter_value',
              hint = case when nearest is null then '' else format('did you mean %L? ', nearest) end
                     || 'kinds are registered from the configuration by `dueline apply`';
end $$;

-- Returns a lane by its type only, so that it can stand where one is missing.
create function dueline.raise_no_lane(queue text, tier text) returns integer
language plpgsql security definer set search_path = pg_catalog, dueline, pg_temp
as $$
begin
    raise exception 'queue % has no lane for this key in tier %', queue, tier
        using errcode = 'object_not_in_prerequisite_state',
              hint = 'run `dueline apply`: it makes the lanes of every queue, tier and slot';
end $$;

create function dueline.raise_collision(task_id bigint) returns void
language plpgsql security definer set search_path = pg_catalog, dueline, pg_temp
as $$
begin
    raise exception 'task % has the same key hash but another kind or key', task_id
        using errcode = 'unique_violation',
              hint = 'two keys share the first 128 bits of their SHA-256: use another key';
end $$;

-- One row of the audit table. Who did it is the login; what it calls itself is in the detail.
create function dueline.note(before dueline.task, step text, to_state text, generation integer, attempt integer,
                             detail jsonb) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
begin
    insert into dueline.task_event (task_id, step, from_state, to_state, generation, attempt, actor, detail)
    values (before.id, step, before.state, to_state, generation, attempt, session_user,
            jsonb_strip_nulls(detail || jsonb_build_object(
                'application', nullif(current_setting('application_name', true), ''))));
end $$;

-- Whether a message of this kind may be handled without a `begin`.
create function dueline.is_loose(kind text) returns boolean
language sql stable security definer set search_path = pg_catalog, dueline, pg_temp
as $$ select exists (select from dueline.kind k where k.name = is_loose.kind and k.effect = 'team') $$;

-- What may still happen of a task that its caller has locked:
--   free | published_will_be_dropped | running | may_have_run | finished
-- The alarm is locked as well, so that the answer stays true until the caller commits. A call elsewhere begins
-- only under the task's lock (`begin`), so its token is either seen here or comes too late.
create function dueline.under_way(task dueline.task, effect text) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    leased boolean;
    claimed boolean;
    seen dueline.dedupe;
begin
    if task.state = 'done' then
        return 'finished';
    end if;
    select d.lease_until is not null, d.claim_no > 0 into leased, claimed
    from dueline.due d where d.id = task.id for update;
    if effect = 'here' then
        -- Effect and settle are one transaction: what has not settled has not happened.
        return case when leased then 'published_will_be_dropped' else 'free' end;
    end if;
    select * into seen from dueline.dedupe d where d.key_hash = task.key_hash;
    return case
        when seen.outcome = 'done' then 'finished'
        when seen.outcome = 'in_progress' and seen.until > clock_timestamp() then 'running'
        when seen.outcome = 'in_progress' or seen.unknown then 'may_have_run'
        -- A message that nobody has to begin can be handled whenever somebody reads it.
        when effect = 'team' and (claimed or task.may_have_run) then 'may_have_run'
        when leased then 'may_have_run'
        when seen.outcome = 'failed' then 'free'
        -- Tried without a `begin`: nobody knows.
        when task.attempt > 0 or task.state = 'dead' then 'may_have_run'
        else 'free'
    end;
end $$;

-- Gives a task that its caller has locked a new life: live, the next generation, attempt 0, and an alarm. The one
-- way in which a task that exists gets an alarm; `fence` goes on from where it was.
create function dueline.make_live(before dueline.task, step text, due_at timestamptz, tier text, lane integer,
                                  payload jsonb, headers jsonb, detail jsonb) returns dueline.task
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    after dueline.task;
    buried jsonb;
begin
    update dueline.task t
    set state = 'live', generation = t.generation + 1, attempt = 0, fence = null,
        due_at = make_live.due_at, tier = make_live.tier,
        payload = make_live.payload, headers = make_live.headers,
        published_at = null, finished_at = null, last_error = null, cancel_wished_at = null,
        -- While it has an alarm, that one's claims tell.
        may_have_run = t.may_have_run
                       or t.state in ('dead', 'skipped') and dueline.is_loose(t.kind)
    where t.id = before.id
    returning t.* into after;
    insert into dueline.due as d (id, next_at, lane, generation, attempt, fence)
    values (after.id, dueline.alarm_at(after.due_at), make_live.lane, after.generation, 0,
            coalesce(before.fence, 0) + 1)
    on conflict (id) do update
    set next_at = excluded.next_at, lane = excluded.lane, generation = excluded.generation, attempt = 0,
        lease_until = null, claimed_at = null, claim_epoch = null, extensions = 0, unanswered = 0,
        fence = d.fence + 1;
    delete from dueline.stranded s where s.id = before.id
    returning jsonb_build_object('reason', s.reason, 'error', s.error, 'history', s.history) into buried;
    perform dueline.note(before, step, 'live', after.generation, 0,
                         detail || jsonb_build_object('was_due_at', before.due_at, 'stranded', buried));
    return after;
end $$;
