-- What the sweep must know of tasks before it decides: the key tells the partition, the deadline the age.
select t.id, t.generation, t.kind, t.key, t.attempt, t.due_at,
       coalesce(t.due_at < clock_timestamp() - k.age_limit, false) as too_old
  from dueline.task t
  left join dueline.kind k on k.name = t.kind
 where t.id = any ($1::bigint[])
   and t.state = 'live'
