-- Over all tasks that are due by now: effects that happened again, tasks that are not done or without their
-- effect, effects or claims before the due time, and how many tasks there are.
-- `orders` counts its own effects (closes): evidence that is independent of the product's tables.
select (select coalesce(sum(o.closes - 1), 0)::bigint from orders o where o.closes > 1),
       count(*) filter (where t.state <> 'done' or coalesce(o.closes, 0) = 0),
       count(*) filter (where o.closed_at < t.due_at or t.published_at < t.due_at),
       count(*)
  from dueline.task t
  left join orders o on o.id = t.key::bigint
 where t.due_at <= clock_timestamp()
