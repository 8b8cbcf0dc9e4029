-- begin, complete and fail in bulk, for a consumer that calls webhooks: what stands in the file before, for many tries
-- at once. A call is made between the two, and no lock is held meanwhile.
--
-- Locks: dedupe in hash order, then task in id order, skipping what is held, then due.

-- Asks for tries, and lets nobody else have those keys for `lasting`. At most one try of each task. Answers one token for
-- all that have begun, and for each try, in their order:
--
--   begun        call; `may_have_run`: an earlier call ended without anybody knowing how
--   done         the key is done: the task is settled from what is remembered
--   in_progress  somebody else calls; it comes again when that is over
--   failed       this very try has failed before, and the task does not know: finish it as failed, without a call
--   early        it waits again until it is due
--   stale        the row has gone on
--   moved        somebody holds the row: ask again
create function dueline.begin_calls(queue text, ids bigint[], hashes uuid[], generations integer[], attempts integer[],
                                    lasting interval, repeated bigint,
                                    out token uuid, out verdicts text[], out may_have_run boolean[])
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    -- Between the end of a call and the next delivery of its message.
    slack constant interval := interval '5 seconds';
    mine constant uuid := gen_random_uuid();
    ends constant timestamptz := clock_timestamp() + lasting;
    untils timestamptz[] := array_fill(null::timestamptz, array[cardinality(ids)]);
    ready integer[];
    early integer[];
    held integer[];
    seen record;
    o integer;
begin
    token := mine;
    verdicts := array_fill('stale'::text, array[cardinality(ids)]);
    may_have_run := array_fill(false, array[cardinality(ids)]);
    select array_agg(m.ord::integer) filter (where t.due_at <= clock_timestamp()),
           array_agg(m.ord::integer) filter (where t.due_at > clock_timestamp())
    into ready, early
    from unnest(begin_calls.ids, hashes, generations, attempts)
         with ordinality as m (id, key_hash, generation, attempt, ord)
    join dueline.task t on t.id = m.id
    where t.key_hash = m.key_hash and t.state = 'live' and t.generation = m.generation and t.attempt = m.attempt;

    if early is not null then
        perform dueline.return_early(array(select ids[e] from unnest(early) e),
                                     array(select generations[e] from unnest(early) e),
                                     array(select attempts[e] from unnest(early) e));
        foreach o in array early loop
            verdicts[o] := 'early';
        end loop;
    end if;
    ready := coalesce(ready, '{}');
    foreach o in array ready loop
        -- Until its key is seen: one that is skipped at this moment has no row.
        verdicts[o] := 'moved';
    end loop;

    insert into dueline.dedupe (key_hash, generation, attempt, outcome, token, until)
    select hashes[r], generations[r], attempts[r], 'in_progress', mine, ends
    from unnest(ready) r
    order by hashes[r]
    on conflict (key_hash) do nothing;
    -- A statement of its own: it sees what that one waited for.
    for seen in
        select r.ord, d.outcome, d.generation, d.attempt, d.until, d.unknown, d.token
        from unnest(ready) r (ord)
        join dueline.dedupe d on d.key_hash = hashes[r.ord]
        order by d.key_hash
        for update of d
    loop
        o := seen.ord;
        verdicts[o] := case
            when seen.token = mine then 'begun'
            when seen.outcome = 'done' then 'done'
            when seen.outcome = 'in_progress' and seen.until > clock_timestamp() then 'in_progress'
            when seen.outcome = 'failed' and (seen.generation, seen.attempt) = (generations[o], attempts[o]) then 'failed'
            else 'begun' end;
        untils[o] := case verdicts[o] when 'begun' then ends when 'in_progress' then seen.until end;
        -- A call whose end has passed without a word may have run.
        may_have_run[o] := seen.unknown or seen.outcome = 'in_progress' and seen.token is distinct from mine;
    end loop;

    -- Under the task's lock: whoever cancels sees the token, or was here before it.
    select array_agg(l.ord) into held
    from (select r.ord
          from unnest(ready) r (ord)
          join dueline.task t on t.id = ids[r.ord]
          where verdicts[r.ord] in ('begun', 'done') and t.key_hash = hashes[r.ord] and t.state = 'live'
            and t.generation = generations[r.ord] and t.attempt = attempts[r.ord]
          order by t.id
          for update of t skip locked) l;
    foreach o in array ready loop
        if verdicts[o] in ('begun', 'done') and o <> all (coalesce(held, '{}')) then
            verdicts[o] := 'moved';
        end if;
    end loop;
    delete from dueline.dedupe d using unnest(ready) r
    where verdicts[r] = 'moved' and d.key_hash = hashes[r] and d.token = mine;
    update dueline.dedupe d
    set outcome = 'in_progress', token = mine, until = ends, generation = generations[r], attempt = attempts[r],
        finished_at = null, unknown = may_have_run[r]
    from unnest(ready) r
    where verdicts[r] = 'begun' and d.key_hash = hashes[r] and d.token is distinct from mine;
    update dueline.due d
    set lease_until = greatest(d.lease_until, untils[r] + slack), unanswered = 0, fence = d.fence + 1
    from unnest(ready) r
    where verdicts[r] in ('begun', 'in_progress') and d.id = ids[r] and d.generation = generations[r]
      and d.attempt = attempts[r] and d.lease_until is not null;
    if 'done' = any (verdicts) then
        perform dueline.settle_known(t)
        from unnest(ready) r
        join dueline.task t on t.id = ids[r]
        where verdicts[r] = 'done';
    end if;
    if repeated > 0 or verdicts && '{stale,done}' then
        perform dueline.count_stops(queue, '{batch,guard,dedupe}', array[
            repeated, cardinality(array_positions(verdicts, 'stale')),
            cardinality(array_positions(verdicts, 'done'))]);
    end if;
end $$;

-- What became of a call that was finished; `reason` and `died` of a death.
create type dueline.call_finished as (
    ord         bigint,
    verdict     text,
    generation  integer,
    attempt     integer,
    reason      text,
    at          timestamptz
);

-- What was heard of calls: done, skipped, retry, or dead. `doubtful`: nobody knows whether it had an effect. A verdict
-- for each, as of `settle_outcomes`, and
--
--   taken   the key is somebody else's by now: nothing was written
--   locked  somebody holds the row: ask again
--
-- That an effect happened is true whoever has the key; everything else counts only under the token.
create function dueline.finish_calls(ids bigint[], hashes uuid[], generations integer[], attempts integer[], tokens uuid[],
                                     outcomes text[], doubtful boolean[], reasons text[], retry_after_ms bigint[])
returns setof dueline.call_finished
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    mine integer[];
    settled text[];
begin
    select array_agg(l.ord) into mine
    from (select o.ord::integer as ord
          from unnest(hashes) with ordinality o (key_hash, ord)
          join dueline.dedupe d on d.key_hash = o.key_hash
          where d.token = tokens[o.ord]
             -- Written when the task was held by somebody: this is the second time of asking.
             or d.outcome = 'failed' and d.generation = generations[o.ord] and d.attempt = attempts[o.ord]
          order by d.key_hash
          for update of d) l;
    mine := coalesce(mine, '{}');
    update dueline.dedupe d
    set unknown = true
    from unnest(mine) m
    where doubtful[m] and d.key_hash = hashes[m] and not d.unknown and d.outcome <> 'done';
    mine := mine || array(select o.ord::integer from unnest(outcomes) with ordinality o (outcome, ord)
                          where o.outcome = 'done' and o.ord <> all (mine));
    settled := dueline.settle_outcomes(
        array(select finish_calls.ids[m.ord] from unnest(mine) with ordinality m (ord, place) order by m.place),
        array(select hashes[m.ord] from unnest(mine) with ordinality m (ord, place) order by m.place),
        array(select generations[m.ord] from unnest(mine) with ordinality m (ord, place) order by m.place),
        array(select attempts[m.ord] from unnest(mine) with ordinality m (ord, place) order by m.place),
        array(select outcomes[m.ord] from unnest(mine) with ordinality m (ord, place) order by m.place),
        array(select reasons[m.ord] from unnest(mine) with ordinality m (ord, place) order by m.place),
        array(select retry_after_ms[m.ord] from unnest(mine) with ordinality m (ord, place) order by m.place),
        interval '0');
    return query
        select o.ord, coalesce(m.verdict, 'taken'), t.generation, t.attempt, s.reason,
               case when s.id is null then t.finished_at else s.died_at end
        from unnest(finish_calls.ids) with ordinality o (id, ord)
        left join unnest(mine, settled) m (ord, verdict) on m.ord = o.ord
        left join dueline.task t on t.id = o.id
        left join dueline.stranded s on s.id = t.id and s.generation = t.generation
        order by o.ord;
end $$;
