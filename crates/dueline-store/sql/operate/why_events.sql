-- The latest events of a task, oldest first.
select at, step, from_state, to_state, generation, attempt, actor, detail::text as detail
from (
    select event, at, step, from_state, to_state, generation, attempt, actor, detail
    from dueline.task_event
    where task_id = $1
    order by event desc
    limit $2
) latest
order by event
