-- What is recorded of one task. $1 kind, $2 key.
select (extract(epoch from e.at) * 1000000)::bigint as at,
       format('%s by %s: %s → %s, generation %s, attempt %s %s', e.step, e.actor, e.from_state, e.to_state,
              e.generation, e.attempt, e.detail) as what
  from dueline.task_event as e
  join dueline.task as t on t.id = e.task_id
 where t.kind = $1 and t.key = $2
union all
select (extract(epoch from t.created_at) * 1000000)::bigint, 'the row is made, as ' || t.id
  from dueline.task as t where t.kind = $1 and t.key = $2
union all
select (extract(epoch from t.published_at) * 1000000)::bigint, 'the row''s published_at'
  from dueline.task as t where t.kind = $1 and t.key = $2 and t.published_at is not null
union all
select (extract(epoch from t.finished_at) * 1000000)::bigint, 'the row is finished: ' || t.state
  from dueline.task as t where t.kind = $1 and t.key = $2 and t.finished_at is not null
union all
select (extract(epoch from s.died_at) * 1000000)::bigint,
       format('stranded: %s, generation %s, %s attempts, lettered %s: %s', s.reason, s.generation, s.attempts,
              s.lettered_at, s.error)
  from dueline.stranded as s where s.kind = $1 and s.key = $2
union all
select (extract(epoch from p.finished_at) * 1000000)::bigint,
       format('dedupe: %s, generation %s, attempt %s', p.outcome, p.generation, p.attempt)
  from dueline.dedupe as p
  join dueline.task as t on t.key_hash = p.key_hash
 where t.kind = $1 and t.key = $2
