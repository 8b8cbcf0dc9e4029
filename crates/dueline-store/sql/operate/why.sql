-- Everything about the tasks of one key, over all kinds or one. The key itself is in no index: its hash is, for
-- each kind.
select clock_timestamp() as now,
       t.id, k.queue, t.kind, t.key, t.key_hash, t.tier, t.state, t.generation, t.attempt, t.due_at, t.created_at,
       t.published_at, t.finished_at, t.last_error, t.payload::text as payload, t.headers::text as headers,
       cardinality(k.backoff_ms) + 1 as max_attempts, q.consumer_group,
       d.next_at, d.lease_until, d.claimed_at, d.claim_epoch, d.claim_no, d.unanswered, d.extensions,
       l.lane, l.tier as lane_tier, l.slot, l.epoch as lane_epoch,
       r.name as owner_name, r.heartbeat_at as owner_heartbeat_at, r.ended_at as owner_ended_at,
       r.ended_why as owner_ended_why, r.cannot_produce as owner_cannot_produce,
       (select count(*) from dueline.relay x where x.ended_at is null) as open_relays,
       m.outcome as dedupe_outcome, m.finished_at as dedupe_finished_at, m.until as dedupe_until,
       s.reason as dead_reason, s.error as dead_error, s.history::text as dead_history, s.attempts as dead_attempts,
       s.died_at, s.lettered_at
from dueline.kind k
join dueline.queue q on q.name = k.queue
join dueline.task t on t.key_hash = dueline.key_hash(k.queue, k.name, $1) and t.kind = k.name and t.key = $1
left join dueline.due d on d.id = t.id
left join dueline.lane l on l.lane = d.lane
left join dueline.relay r on r.epoch = l.epoch
left join dueline.dedupe m on m.key_hash = t.key_hash
left join dueline.stranded s on s.id = t.id
where $2::text is null or k.name = $2
order by k.name
