-- Steps 1 and 2 of the effect: judge each message by its row, without locks, then enter the ready ones in the
-- dedupe table, in hash order, so that two batches with common keys wait for each other and never in a circle.
-- In the same round trip, if there is anything to handle: become the handlers' role, and let the planner choose
-- as it likes for somebody else's statement. Rights on our tables were checked when this statement began.
--
-- $1 ids, $2 key hashes, $3 generations, $4 attempts, $5 the name of this transaction, checked by the settle,
-- $6 the handlers' role.
-- One row: the ordinals that are not simply `ready`, null when there are none: `known` (the key is finished
-- already), `early`, `stale`; and who we were.
with message as materialized (
    select m.ord, m.id, m.key_hash, m.generation, m.attempt
    from unnest($1::bigint[], $2::uuid[], $3::integer[], $4::integer[])
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
),
-- Which keys did not come back is worked out only when some did not. Added up, not joined: nobody knows how many
-- rows a set has, and a join of two would compare each row with each.
known as (
    select array_agg(k.ord) as ords
    from (select max(u.ord) as ord
          from (select j.ord, j.key_hash from judged j where j.verdict = 'ready'
                union all
                select null, e.key_hash from entered e) u
          where (select count(*) from entered) < (select v.ready from verdict v)
          group by u.key_hash
          having count(*) = 1) k
)
select known.ords as known, v.early, v.stale,
       set_config('dueline.effect', $5, true) as name,
       current_setting('role') as before,
       case when v.ready > coalesce(cardinality(known.ords), 0) then
           set_config('enable_seqscan', 'on', true) || set_config('enable_bitmapscan', 'on', true) ||
           set_config('enable_hashjoin', 'on', true) || set_config('enable_mergejoin', 'on', true) ||
           set_config('plan_cache_mode', 'force_custom_plan', true) || set_config('role', $6, true)
       end as now
from verdict v, known
