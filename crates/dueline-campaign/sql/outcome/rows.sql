-- One task's row and alarm, as they stand. $1 kind, $2 key.
select t.id, to_jsonb(t)::text || coalesce(' alarm ' || to_jsonb(d)::text, ' no alarm')
  from dueline.task as t
  left join dueline.due as d on d.id = t.id
 where t.kind = $1 and t.key = $2
