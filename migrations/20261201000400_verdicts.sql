-- A person's verdicts on a dead task, and what the database knows of itself. For dueline_operate only.

-- The dead row that a letter or a list tells of, locked. Null state of the answer when it is not that row any more:
-- `verdict` then says stale (the task has moved on) or gone (no such task, or another one under its id).
create function dueline.lock_dead(id bigint, generation integer, key_hash uuid, any_generation boolean,
                                  out verdict text, out task dueline.task)
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
begin
    select t.* into task from dueline.task t where t.id = lock_dead.id for update;
    verdict := case
        when task.id is null then 'gone'
        -- Ids are handed out again after a failover that lost commits: the hash tells.
        when lock_dead.key_hash is not null and task.key_hash <> lock_dead.key_hash then 'gone'
        when task.state <> 'dead' then 'stale'
        -- A generation that is not given is not the right one: null compares as unknown, which would pass.
        when task.generation is distinct from lock_dead.generation and not any_generation then 'stale'
    end;
end $$;

-- The receipt of a verdict that changed nothing; a row of another task is not shown.
create function dueline.no_verdict(verdict text, asked_id bigint, task dueline.task) returns dueline.receipt
language plpgsql immutable parallel safe security definer
set search_path = pg_catalog, dueline, pg_temp
as $$
begin
    if verdict = 'gone' then
        return row(verdict, asked_id, null, null, null, null, null, null)::dueline.receipt;
    end if;
    return dueline.receipt_of(verdict, task);
end $$;

-- Sends a dead task again: live, the next generation, attempt 0, the same dedupe key and deadline. Receipts:
-- replayed, stale, gone, and refused: it died longer ago than finished keys are remembered
-- (`dedupe_retention`), so a second effect could not be told from the first.
-- `force` acts on a dead row of another generation too, and on one that is too old; never on a row that is not
-- dead, nor on another task's.
create function dueline.replay(id bigint, source_generation integer, key_hash uuid, who text,
                               force boolean default false, dedupe_retention interval default null)
returns dueline.receipt
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    dead record;
    t dueline.task;
    home record;
begin
    dead := dueline.lock_dead(id, source_generation, key_hash, coalesce(force, false));
    t := dead.task;
    if dead.verdict is not null then
        return dueline.no_verdict(dead.verdict, id, t);
    elsif not coalesce(force, false) and exists (
        select from dueline.stranded s
        where s.id = t.id and s.died_at < clock_timestamp() - dedupe_retention)
    then
        return dueline.receipt_of('refused', t);
    end if;
    -- Its tier may have been removed from the configuration since.
    select k.queue,
           coalesce((select r.name from dueline.tier r where r.queue = k.queue and r.name = t.tier),
                    dueline.tier_for(k.queue, t.due_at - t.created_at)) as tier
    into home
    from dueline.kind k where k.name = t.kind;
    if not found then
        perform dueline.raise_no_route(t.kind);
    end if;
    t := dueline.make_live(t, 'replay', t.due_at, home.tier,
                           dueline.lane_for(home.queue, home.tier, t.key_hash), t.payload, t.headers,
                           jsonb_build_object('who', left(who, 200), 'force', force));
    return dueline.receipt_of('replayed', t);
end $$;

-- It did happen: dead → done. Receipts: resolved, stale, gone.
create function dueline.resolve(id bigint, generation integer, who text, reason text) returns dueline.receipt
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    dead record;
    t dueline.task;
    seen dueline.task;
    buried jsonb;
begin
    -- dedupe → task, as everywhere: look without a lock, remember the key as done, then lock and look again.
    select x.* into seen from dueline.task x where x.id = resolve.id;
    if seen.state = 'dead' and seen.generation = resolve.generation then
        insert into dueline.dedupe as d (key_hash, outcome, generation, attempt, finished_at)
        values (seen.key_hash, 'done', seen.generation, seen.attempt, clock_timestamp())
        on conflict (key_hash) do update
        set outcome = 'done', generation = excluded.generation, attempt = excluded.attempt,
            finished_at = excluded.finished_at, token = null, until = null;
    end if;
    dead := dueline.lock_dead(id, generation, seen.key_hash, false);
    t := dead.task;
    if dead.verdict is not null then
        if seen.state = 'dead' and seen.generation = resolve.generation then
            raise exception 'task % was changed at the same moment', id
                using errcode = 'serialization_failure', hint = 'look at it again';
        end if;
        return dueline.no_verdict(dead.verdict, id, t);
    end if;
    delete from dueline.stranded s where s.id = t.id
    returning jsonb_build_object('reason', s.reason, 'error', s.error, 'history', s.history) into buried;
    update dueline.task x
    set state = 'done', generation = x.generation + 1, finished_at = clock_timestamp()
    where x.id = t.id returning x.* into t;
    perform dueline.note(dead.task, 'resolve', 'done', t.generation, t.attempt,
                         jsonb_build_object('who', left(who, 200), 'reason', left(resolve.reason, 1000),
                                            'stranded', buried));
    return dueline.receipt_of('resolved', t);
end $$;

-- It is not wanted: dead → cancelled. Receipts: discarded, stale, gone.
create function dueline.discard(id bigint, generation integer, who text, reason text) returns dueline.receipt
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    dead record;
begin
    dead := dueline.lock_dead(id, generation, null, false);
    if dead.verdict is not null then
        return dueline.no_verdict(dead.verdict, id, dead.task);
    end if;
    return dueline.receipt_of('discarded', dueline.make_cancelled(
        dead.task, 'discard', jsonb_build_object('who', left(who, 200), 'reason', left(reason, 1000))));
end $$;

-- The source of every message of this instance.
create function dueline.source() returns text
language plpgsql stable security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    uri text;
begin
    select format('dueline://%s/%s/%s', i.name, i.uuid, i.timeline) into uri from dueline.instance i;
    if uri is null then
        raise exception 'this database has no instance yet' using
            errcode = 'object_not_in_prerequisite_state', hint = 'run `dueline apply`';
    end if;
    return uri;
end $$;

-- The timeline that this cluster writes, from the name of its WAL file: the control file follows a promotion only
-- with the next checkpoint. An error on a standby, which writes none.
create function dueline.current_timeline() returns integer
language sql volatile security definer set search_path = pg_catalog, dueline, pg_temp
as $$ select ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer $$;

create function dueline.current_system_identifier() returns text
language sql volatile security definer set search_path = pg_catalog, dueline, pg_temp
as $$ select c.system_identifier::text from pg_control_system() c $$;
