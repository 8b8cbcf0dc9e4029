-- Steps 1 and 2 of the effect: judge each message by its row, without locks, then enter the ready ones in the
-- dedupe table, in hash order, so that two batches with common keys wait for each other and never in a circle.
--
-- $1 ids, $2 key hashes, $3 generations, $4 attempts, $5 the name of this transaction, checked by the settle.
-- Answers per ordinal: `ready`, `known` (its key is finished already), `early`, `stale`.
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
)
select case when j.verdict = 'ready' and e.key_hash is null then 'known' else j.verdict end as verdict,
       set_config('dueline.effect', $5, true)
from judged j
left join entered e on e.key_hash = j.key_hash
order by j.ord
