-- What the sweep must know of tasks before it decides: the key tells the partition, the deadline the age.
select t.id, t.generation, t.kind, t.key, t.attempt, t.due_at,
       t.due_at < clock_timestamp() - k.age_limit as too_old
  from dueline.task t
  join dueline.kind k on k.name = t.kind
 where t.id = any ($1::bigint[])
   and t.state = 'live'
