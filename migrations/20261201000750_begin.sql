-- begin, complete, fail: a team with access to this database, in its own transactions.
--
-- Errors of our own:
--   DLS01  the task has moved on: roll back, nothing of yours may stay
--   DLS02  the key is done already: roll back; `begin` settles the task from what is remembered
--   DLX01  task, alarm and key do not agree

-- A part of a try that is missing reads as another try: says so instead.
create function dueline.check_try(task_id bigint, key_hash uuid, generation integer, attempt integer) returns void
language plpgsql immutable security definer set search_path = pg_catalog, dueline, pg_temp
as $$
begin
    if task_id is null or key_hash is null or generation is null or attempt is null then
        perform dueline.raise_problem('a part of the try is null|pass task_id, key_hash, generation and attempt as '
                                      'the message has them');
    end if;
end $$;

-- The row of one try, locked, or an error that rolls the caller's work back.
create function dueline.lock_try(task_id bigint, key_hash uuid, generation integer, attempt integer)
returns dueline.task
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    t dueline.task;
begin
    select x.* into t from dueline.task x where x.id = task_id and x.key_hash = lock_try.key_hash for update;
    if not found then
        raise exception 'there is no task % with this key', task_id
            using errcode = 'DLS01', detail = 'state=gone', hint = 'drop the message: its task is gone';
    elsif t.state <> 'live' or (t.generation, t.attempt) is distinct from (lock_try.generation, lock_try.attempt) then
        raise exception 'task % has moved on: it is % in generation %, attempt %',
                        task_id, t.state, t.generation, t.attempt
            using errcode = 'DLS01', detail = 'state=' || t.state,
                  hint = 'roll back and drop the message: it speaks of an earlier try';
    elsif t.due_at > clock_timestamp() then
        raise exception 'task % is not due before %', task_id, t.due_at
            using errcode = 'DLS01', detail = 'state=early', hint = 'roll back; `dueline.begin` puts it back to waiting';
    end if;
    return t;
end $$;

-- Raised when a key's row says that somebody else has it.
create function dueline.raise_taken(task_id bigint, seen dueline.dedupe) returns void
language plpgsql security definer set search_path = pg_catalog, dueline, pg_temp
as $$
begin
    if seen.outcome = 'done' then
        raise exception 'the key of task % is done already', task_id
            using errcode = 'DLS02', hint = 'roll back, then call `dueline.begin`: it settles the task';
    end if;
    raise exception 'somebody else works on the key of task %', task_id
        using errcode = 'DLS01', detail = 'state=' || coalesce(seen.outcome::text, 'forgotten'),
              hint = 'roll back: your token is not, or no more, the one that counts';
end $$;

-- What `begin` answers: begun (with the token to complete or fail with, and its end), done (the task is settled from
-- what is remembered), in_progress (by somebody else until then: it comes again afterwards), failed (this very try has
-- failed before: call `fail` again), early (it waits again until it is due), stale (drop the message).
-- `may_have_run`: some earlier call ended without anybody knowing how.
create type dueline.beginning as (verdict text, token uuid, until timestamptz, may_have_run boolean);

-- The key is finished, and the task does not know: settles it.
create function dueline.settle_known(task dueline.task) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    alarm dueline.due;
begin
    delete from dueline.due d where d.id = task.id returning d.* into alarm;
    update dueline.task x
    set state = 'done', finished_at = clock_timestamp(), published_at = coalesce(alarm.claimed_at, x.published_at)
    where x.id = task.id;
    perform dueline.note(task, 'settle', 'done', task.generation, task.attempt, '{"from": "dedupe"}');
end $$;

-- Asks for one try of a task before something is called outside of this database, and lets nobody else have it for
-- `lasting`. Commit it before the call: it holds the task, and a payer would wait. A cancel of a task that has begun
-- answers `running`.
create function dueline.begin(task_id bigint, key_hash uuid, generation integer, attempt integer,
                              lasting interval default '30 seconds') returns dueline.beginning
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    -- Between the end of a call and the next delivery of its message.
    slack constant interval := interval '5 seconds';
    mine uuid := gen_random_uuid();
    ends timestamptz := clock_timestamp() + lasting;
    seen dueline.dedupe;
    t dueline.task;
begin
    perform dueline.check_try(task_id, key_hash, generation, attempt);
    if lasting is null or lasting < interval '1 second' or lasting > interval '10 minutes' then
        perform dueline.raise_problem('lasting is out of range|pass a span from 1 second to 10 minutes');
    end if;
    select x.* into t from dueline.task x
    where x.id = task_id and x.key_hash = begin.key_hash and x.state = 'live'
      and x.generation = begin.generation and x.attempt = begin.attempt;
    if not found then
        return row('stale', null, null, false)::dueline.beginning;
    elsif t.due_at > clock_timestamp() then
        perform dueline.return_early(array[t.id], array[t.generation], array[t.attempt]);
        return row('early', null, null, false)::dueline.beginning;
    end if;
    -- Dedupe before task, as everywhere. Without a row there is nothing to wait for but an insert of the same key.
    insert into dueline.dedupe (key_hash, generation, attempt, outcome, token, until)
    values (begin.key_hash, begin.generation, begin.attempt, 'in_progress', mine, ends)
    on conflict (key_hash) do nothing;
    if not found then
        select d.* into seen from dueline.dedupe d where d.key_hash = begin.key_hash for update;
        if not found then
            raise exception 'the key of task % was skipped at the same moment', task_id
                using errcode = 'serialization_failure', hint = 'call begin again';
        end if;
    end if;
    if seen.outcome = 'in_progress' and seen.until > clock_timestamp() then
        update dueline.due d
        set lease_until = greatest(d.lease_until, seen.until + slack), unanswered = 0, fence = d.fence + 1
        where d.id = t.id and d.generation = t.generation and d.attempt = t.attempt and d.lease_until is not null;
        return row('in_progress', null, seen.until, seen.unknown)::dueline.beginning;
    elsif seen.outcome = 'failed' and (seen.generation, seen.attempt) = (begin.generation, begin.attempt) then
        return row('failed', null, null, seen.unknown)::dueline.beginning;
    end if;
    -- Under the task's lock: whoever cancels sees the token, or was here before it.
    begin
        t := dueline.lock_try(task_id, key_hash, generation, attempt);
        if seen.outcome = 'done' then
            perform dueline.settle_known(t);
            return row('done', null, null, seen.unknown)::dueline.beginning;
        end if;
    exception when sqlstate 'DLS01' then
        delete from dueline.dedupe d where d.key_hash = begin.key_hash and d.token = mine;
        return row('stale', null, null, false)::dueline.beginning;
    end;
    update dueline.dedupe d
    set outcome = 'in_progress', token = mine, until = ends, generation = begin.generation,
        attempt = begin.attempt, finished_at = null, unknown = d.unknown or seen.outcome = 'in_progress'
    where d.key_hash = begin.key_hash and d.token is distinct from mine;
    update dueline.due d
    set lease_until = greatest(d.lease_until, ends + slack), unanswered = 0, fence = d.fence + 1
    where d.id = t.id and d.lease_until is not null;
    return row('begun', mine, ends, coalesce(seen.unknown or seen.outcome = 'in_progress', false))::dueline.beginning;
end $$;

-- The task is done, or (`outcome => 'skipped'`) there was nothing to do: to be called last in the transaction that
-- has your effect, after your own rows are locked. Commits with your effect or not at all, so the effect happens
-- exactly once. `token` is what `begin` gave, null when it was not called.
-- Answers the outcome. Raises DLS01 and DLS02 when your effect must not stay.
create function dueline.complete(task_id bigint, key_hash uuid, generation integer, attempt integer,
                                 token uuid default null, outcome text default 'done') returns text
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    seen dueline.dedupe;
    t dueline.task;
    alarm dueline.due;
begin
    perform dueline.check_try(task_id, key_hash, generation, attempt);
    if outcome is null or outcome not in ('done', 'skipped') then
        perform dueline.raise_problem('outcome is not known|pass done or skipped');
    end if;
    insert into dueline.dedupe as d (key_hash, finished_at, generation, attempt, outcome)
    values (complete.key_hash, clock_timestamp(), complete.generation, complete.attempt, 'done')
    on conflict (key_hash) do update
    set finished_at = excluded.finished_at, generation = excluded.generation, attempt = excluded.attempt,
        outcome = 'done', token = null, until = null
    where case d.outcome when 'in_progress' then d.token = complete.token
                              or (complete.token is null and d.until < clock_timestamp())
                         when 'failed' then complete.token is null end
    returning d.* into seen;
    if not found then
        select d.* into seen from dueline.dedupe d where d.key_hash = complete.key_hash;
        perform dueline.raise_taken(task_id, seen);
    end if;
    t := dueline.lock_try(task_id, key_hash, generation, attempt);
    delete from dueline.due d where d.id = t.id returning d.* into alarm;
    if alarm.id is null then
        raise exception 'task, alarm and key do not agree: task % has no alarm', task_id using errcode = 'DLX01';
    end if;
    update dueline.task x
    set state = complete.outcome, finished_at = clock_timestamp(),
        published_at = coalesce(alarm.claimed_at, x.published_at),
        fence = case complete.outcome when 'skipped' then alarm.fence + 1 end
    where x.id = t.id;
    if outcome = 'skipped' then
        -- A skipped key may be scheduled again.
        delete from dueline.dedupe d where d.key_hash = complete.key_hash;
    end if;
    return outcome;
end $$;

-- The try failed, or (`permanent`) can never succeed. `doubtful`: nobody knows whether it had an effect; then the
-- death that may come of it says so. Roll your own work back first.
-- Answers what became of the task: retry, dead, or cancelled (somebody had asked for that). Raises DLS01.
create function dueline.fail(task_id bigint, key_hash uuid, generation integer, attempt integer, reason text,
                             token uuid default null, permanent boolean default false,
                             retry_after interval default null, doubtful boolean default false) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    seen dueline.dedupe;
    t dueline.task;
begin
    perform dueline.check_try(task_id, key_hash, generation, attempt);
    if reason is null or reason = '' then
        perform dueline.raise_problem('the reason is empty|say what failed: people read it');
    elsif not (retry_after >= interval '0' and retry_after <= interval '7 days') then
        perform dueline.raise_problem('retry_after is out of range|pass a pause from 0 to 7 days');
    end if;
    select d.* into seen from dueline.dedupe d where d.key_hash = fail.key_hash for update;
    if seen.outcome = 'done' or seen.token is distinct from fail.token
       and (fail.token is not null or seen.until > clock_timestamp())
    then
        perform dueline.raise_taken(task_id, seen);
    end if;
    if doubtful or seen.outcome = 'in_progress' then
        insert into dueline.dedupe as d (key_hash, generation, attempt, outcome, unknown)
        values (fail.key_hash, fail.generation, fail.attempt, 'failed', coalesce(doubtful, false))
        on conflict (key_hash) do update
        set outcome = 'failed', generation = excluded.generation, attempt = excluded.attempt, token = null,
            until = null, unknown = d.unknown or excluded.unknown;
    end if;
    t := dueline.lock_try(task_id, key_hash, generation, attempt);
    return (dueline.record_failures(array[t.id], array[reason], array[coalesce(permanent, false)],
                                    array[(extract(epoch from retry_after) * 1000)::bigint]))[1];
end $$;
