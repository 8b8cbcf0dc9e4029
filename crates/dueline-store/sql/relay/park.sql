-- published or scheduled → dead: too old, unanswered too often, or too large to be sent. Lock order task → due, and
-- neither is waited for: who holds the row is about to answer or to change it. The fence says that the alarm is
-- still the one that was judged.
with asked as (
    select s.id, s.fence, s.reason, s.error
      from unnest($1::bigint[], $2::integer[], $3::text[], $4::text[]) as s (id, fence, reason, error)
), locked as (
    select t.id
      from dueline.task t
     where t.id = any ($1::bigint[])
       and t.state = 'live'
     order by t.id
       for update skip locked
), alarm as (
    select d.id
      from dueline.due d
      join asked s on s.id = d.id and s.fence = d.fence
     where d.id = any (array(select l.id from locked l))
     order by d.id
       for update of d skip locked
), gone as (
    delete from dueline.due d
     where d.id = any (array(select a.id from alarm a))
    returning d.id, d.fence
), dead as (
    update dueline.task t
       set state       = 'dead',
           generation  = t.generation + 1,
           fence       = g.fence + 1,
           finished_at = clock_timestamp(),
           last_error  = left(s.error, 2000)
      from gone g
      join asked s on s.id = g.id
     where t.id = g.id
       and t.state = 'live'
    returning t.id, t.kind, t.key, t.generation, t.attempt, s.reason, s.error
), stranded as (
    insert into dueline.stranded (id, queue, kind, key, generation, attempts, reason, error, history)
    select x.id, k.queue, x.kind, x.key, x.generation, x.attempt, x.reason, left(x.error, 2000),
           (select coalesce(jsonb_agg(jsonb_build_object('at', e.at, 'generation', e.generation,
                                                         'attempt', e.attempt, 'error', e.detail ->> 'error')
                                      order by e.event), '[]')
              from (select v.event, v.at, v.generation, v.attempt, v.detail
                      from dueline.task_event v
                     where v.task_id = x.id and v.step in ('fail', 'die')
                     order by v.event desc
                     limit 100) e)
      from dead x
      join dueline.kind k on k.name = x.kind
    returning id
), event as (
    insert into dueline.task_event (task_id, step, from_state, to_state, generation, attempt, actor, detail)
    select x.id, 'park', 'live', 'dead', x.generation, x.attempt, 'relay',
           jsonb_build_object('reason', x.reason, 'error', left(x.error, 2000))
      from dead x
)
select x.id, x.kind, x.key, x.generation, x.attempt, x.reason
  from dead x
  join stranded s on s.id = x.id
