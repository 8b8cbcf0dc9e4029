-- Every recorded transition, each task's in its order.
select task_id, step, from_state, to_state, generation, attempt, detail ->> 'error' as error
  from dueline.task_event
 order by task_id, event
