-- Every task with what stands beside it. Times in microseconds since the Unix epoch.
select t.id, t.kind, t.key, k.queue, t.tier, t.state, t.generation, t.attempt,
       (extract(epoch from t.due_at) * 1000000)::bigint as due_at,
       (extract(epoch from t.finished_at) * 1000000)::bigint as finished_at,
       d.generation as alarm_generation, d.attempt as alarm_attempt, d.claim_no as alarm_claim_no,
       coalesce(d.lease_until is not null, false) as leased,
       p.outcome as dedupe_outcome,
       s.generation as stranded_generation, s.attempts as stranded_attempts,
       coalesce(s.lettered_at is not null, false) as lettered
  from dueline.task as t
  join dueline.kind as k on k.name = t.kind
  left join dueline.due as d on d.id = t.id
  left join dueline.dedupe as p on p.key_hash = t.key_hash
  left join dueline.stranded as s on s.id = t.id
 order by t.id
