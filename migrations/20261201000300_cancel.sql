-- cancel, cancel_or_raise, cancel_many, get.

-- Where a key of a kind is; an error for an unknown kind, for a typing error must not read as "not found".
create function dueline.locate(kind text, key text, out effect text, out key_hash uuid)
language plpgsql stable security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
begin
    select k.effect, dueline.key_hash(k.queue, k.name, locate.key) into effect, key_hash
    from dueline.kind k
    where k.name = locate.kind;
    if not found then
        perform dueline.raise_no_route(kind);
    end if;
end $$;

-- Cancels a task: nothing of it will run, unless the receipt says otherwise. Asking again answers the same.
create function dueline.cancel(kind text, key text, reason text default null) returns dueline.receipt
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    place record;
    t dueline.task;
    way_back text;
begin
    place := dueline.locate(kind, key);
    select * into t from dueline.task x where x.key_hash = place.key_hash for update;
    if not found then
        return row('not_found', null, kind, key, null, null, null, null)::dueline.receipt;
    elsif t.kind <> cancel.kind or t.key <> cancel.key then
        perform dueline.raise_collision(t.id);
    elsif t.state in ('done', 'skipped') then
        return dueline.receipt_of('finished', t);
    elsif t.state = 'cancelled' then
        return dueline.receipt_of(dueline.cancelled_as(t, place.effect), t);
    end if;
    way_back := dueline.under_way(t, place.effect);
    if way_back = 'finished' then
        -- Done elsewhere; the outcome has not come back yet.
        return dueline.receipt_of('finished', t);
    elsif way_back = 'running' then
        update dueline.task x set cancel_wished_at = clock_timestamp() where x.id = t.id;
        perform dueline.note(t, 'cancel_wish', t.state, t.generation, t.attempt,
                             jsonb_build_object('reason', left(reason, 1000), 'receipt', way_back));
        return dueline.receipt_of('running', t);
    end if;
    way_back := case way_back when 'free' then 'cancelled' else way_back end;
    t := dueline.make_cancelled(t, 'cancel', jsonb_build_object('reason', left(reason, 1000),
                                                                'receipt', way_back));
    return dueline.receipt_of(way_back, t);
end $$;

-- What the cancel of a cancelled task had answered.
create function dueline.cancelled_as(task dueline.task, effect text) returns text
language sql stable security definer set search_path = pg_catalog, dueline, pg_temp
as $$
    select coalesce(
        (select e.detail ->> 'receipt' from dueline.task_event e
         where e.task_id = task.id and e.generation = task.generation and e.to_state = 'cancelled'
         order by e.event desc limit 1),
        case effect when 'here' then 'cancelled' else 'may_have_run' end)
$$;

-- Takes a task that its caller has locked, live or dead, out of the world: alarm and stranded row go, and
-- messages under way are of an old generation.
create function dueline.make_cancelled(before dueline.task, step text, detail jsonb) returns dueline.task
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    after dueline.task;
    last_fence integer;
    claimed boolean;
    buried jsonb;
begin
    delete from dueline.due d where d.id = before.id returning d.fence, d.claim_no > 0 into last_fence, claimed;
    delete from dueline.stranded s where s.id = before.id
    returning jsonb_build_object('reason', s.reason, 'error', s.error, 'history', s.history) into buried;
    update dueline.task t
    set state = 'cancelled', generation = t.generation + 1, finished_at = clock_timestamp(),
        fence = coalesce(last_fence, t.fence, 0) + 1,
        may_have_run = t.may_have_run
                       or (claimed or t.state = 'dead') and dueline.is_loose(t.kind)
    where t.id = before.id
    returning t.* into after;
    perform dueline.note(before, step, 'cancelled', after.generation, after.attempt,
                         detail || jsonb_build_object('stranded', buried));
    return after;
end $$;

-- For callers who must not go on unless the task is out of the way.
create function dueline.cancel_or_raise(kind text, key text, reason text default null) returns dueline.receipt
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    answer dueline.receipt := dueline.cancel(kind, key, reason);
begin
    if answer.receipt not in ('cancelled', 'published_will_be_dropped') then
        raise exception 'the task of kind % cannot be cancelled any more: %', kind, answer.receipt
            using errcode = 'raise_exception', detail = 'receipt=' || answer.receipt,
                  hint = case answer.receipt
                      when 'not_found' then 'it was never scheduled, or its retention is over'
                      when 'running' then 'try again when it has ended'
                      else 'look at the business object: its effect happened or may have happened' end;
    end if;
    return answer;
end $$;

-- Cancels many, in the order of their hash, so that two callers cannot wait for each other in a ring.
create function dueline.cancel_many(kind text, keys text[], reason text default null)
returns setof dueline.numbered_receipt
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    each record;
    answer dueline.receipt;
begin
    for each in
        select k.ord::integer as ord, k.key
        from unnest(keys) with ordinality k (key, ord)
        order by (dueline.locate(cancel_many.kind, k.key)).key_hash, k.ord
    loop
        answer := dueline.cancel(kind, each.key, reason);
        return next row(each.ord, answer.receipt, answer.id, answer.kind, answer.key, answer.state,
                        answer.generation, answer.due_at, answer.tier)::dueline.numbered_receipt;
    end loop;
end $$;

-- A task as people see it. `phase` is the state, with live told apart: scheduled (its alarm waits) or published
-- (leased until somebody answers).
create type dueline.task_view as (
    id            bigint,
    queue         text,
    kind          text,
    key           text,
    state         text,
    phase         text,
    generation    integer,
    attempt       integer,
    due_at        timestamptz,
    next_at       timestamptz,
    lease_until   timestamptz,
    tier          text,
    payload       jsonb,
    headers       jsonb,
    created_at    timestamptz,
    published_at  timestamptz,
    finished_at   timestamptz,
    last_error    text
);

-- The task of a key, or no row.
create function dueline.get(kind text, key text) returns setof dueline.task_view
language plpgsql stable security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    place record;
begin
    place := dueline.locate(kind, key);
    return query
        select t.id, k.queue, t.kind, t.key::text, t.state::text,
               case when t.state <> 'live' then t.state::text
                    when d.lease_until is null then 'scheduled' else 'published' end,
               t.generation, t.attempt, t.due_at::timestamptz, d.next_at, d.lease_until, t.tier, t.payload::jsonb,
               t.headers::jsonb, t.created_at, coalesce(d.claimed_at, t.published_at), t.finished_at, t.last_error
        from dueline.task t
        join dueline.kind k on k.name = t.kind
        left join dueline.due d on d.id = t.id
        where t.key_hash = place.key_hash and t.kind = get.kind and t.key = get.key;
end $$;
