-- The dead of this transaction, with their attempt history (the last hundred failures), wait for a person.
-- $1 queue, $2 ids, $3 reasons.
insert into dueline.stranded (id, queue, kind, key, generation, attempts, reason, error, history)
select t.id, $1, t.kind, t.key, t.generation, t.attempt, s.reason, coalesce(t.last_error, ''),
       (select coalesce(jsonb_agg(jsonb_build_object('at', e.at, 'generation', e.generation,
                                                     'attempt', e.attempt, 'error', e.detail ->> 'error')
                                  order by e.event), '[]')
        from (select event, at, generation, attempt, detail
              from dueline.task_event
              where task_id = t.id and step in ('fail', 'die')
              order by event desc
              limit 100) e)
from unnest($2::bigint[], $3::text[]) as s (id, reason)
join dueline.task t on t.id = s.id
where t.state = 'dead'
returning id, died_at
