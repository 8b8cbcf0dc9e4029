delete from dueline.lane l
where l.lane = any ($1::integer[]) and not exists (select from dueline.due d where d.lane = l.lane)
