-- Of the orders $1 to $2: how many are settled, the first claim, the last claim, and the last settle.
select count(t.finished_at), min(t.published_at), max(t.published_at), max(t.finished_at)
  from orders o
  join dueline.task t on t.key_hash = dueline.key_hash($3, $4, o.id::text)
 where o.id between $1 and $2
