-- Alarms and stranded rows whose task is gone.
select 'alarm ' || d.id as what from dueline.due as d
 where not exists (select from dueline.task as t where t.id = d.id)
union all
select 'stranded ' || s.id from dueline.stranded as s
 where not exists (select from dueline.task as t where t.id = s.id)
