-- Of the orders $1 to $2: how many have a claimed task, and the seconds from the first claim to the last.
select count(*), extract(epoch from max(d.claimed_at) - min(d.claimed_at))::float8
  from orders o
  join dueline.task t on t.key_hash = dueline.key_hash($3, $4, o.id::text)
  join dueline.due d on d.id = t.id
 where o.id between $1 and $2 and d.claimed_at is not null
