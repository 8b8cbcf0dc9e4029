-- How many tasks are live, how many of them overdue, and since when (in microseconds since the Unix epoch) the oldest
-- that has not failed yet.
select count(*) as live,
       count(*) filter (where t.due_at <= clock_timestamp()) as overdue,
       (extract(epoch from min(t.due_at) filter (where d.attempt = 0)) * 1000000)::bigint as oldest
  from dueline.due as d
  join dueline.task as t on t.id = d.id
