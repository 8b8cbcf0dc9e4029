//! What holds of the tables after whatever was called.

use anyhow::{Result, ensure};
use sqlx::PgPool;

/// Each row names a rule that is broken and the task that breaks it.
const BROKEN: &str = "
with live as (
    select t.*, d.id as alarm, d.next_at, d.lane, d.generation as d_generation, d.attempt as d_attempt
    from dueline.task t left join dueline.due d using (id)
    where t.state = 'live'
)
select 'live without an alarm' as rule, id from live where alarm is null
union all select 'an alarm of another pair', id from live
    where (d_generation, d_attempt) is distinct from (generation, attempt)
union all select 'an alarm before its deadline', id from live where next_at < due_at
union all select 'an alarm of nobody live', d.id
    from dueline.due d left join dueline.task t using (id) where t.state is distinct from 'live'
union all select 'an alarm in another lane', l.id
    from live l join dueline.kind k on k.name = l.kind join dueline.queue q on q.name = k.queue
    left join dueline.lane x
           on x.lane = l.lane and x.queue = k.queue and x.tier = l.tier
          and x.slot = dueline.slot_for(l.key_hash, q.slots)
    where x.lane is null
union all select 'dead and not stranded', t.id
    from dueline.task t left join dueline.stranded s
         on s.id = t.id and s.generation = t.generation and s.key = t.key and s.kind = t.kind
    where t.state = 'dead' and s.id is null
union all select 'stranded and not dead', s.id
    from dueline.stranded s join dueline.task t using (id) where t.state <> 'dead'
union all select 'done and not remembered', t.id
    from dueline.task t left join dueline.dedupe d on d.key_hash = t.key_hash and d.outcome = 'done'
    where t.state = 'done' and d.key_hash is null
union all select 'remembered and not done', t.id
    from dueline.task t join dueline.dedupe d on d.key_hash = t.key_hash and d.outcome = 'done'
    where t.state <> 'done'
union all select 'a key hash of something else', t.id
    from dueline.task t join dueline.kind k on k.name = t.kind
    where t.key_hash <> dueline.key_hash(k.queue, t.kind, t.key)
union all select 'a payload that is too large', t.id
    from dueline.task t join dueline.kind k on k.name = t.kind
    where octet_length(t.payload::text) > k.max_payload_bytes
union all select 'a header that could pass for ours', t.id
    from dueline.task t, jsonb_object_keys(t.headers) h (name) where h.name ~* '^(ce_|dueline-)'
limit 20";

/// Fails when a rule is broken.
pub async fn hold(pool: &PgPool) -> Result<()> {
    let broken: Vec<(String, i64)> = sqlx::query_as(BROKEN).fetch_all(pool).await?;
    ensure!(broken.is_empty(), "the tables are wrong: {broken:?}");
    Ok(())
}
