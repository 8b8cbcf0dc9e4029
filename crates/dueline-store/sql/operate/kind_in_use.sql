-- Live and dead tasks of a kind, counted up to a bound each.
select (select count(*) from (
            select from dueline.due d
            join dueline.task t on t.id = d.id
            where d.lane in (select l.lane from dueline.lane l where l.queue = $2) and t.kind = $1
            limit $3) live) as live,
       (select count(*) from (select from dueline.stranded s where s.kind = $1 limit $3) dead) as dead
