-- Keys of the latest tasks, to suggest one that was meant.
select distinct key from (select t.key from dueline.task t order by t.id desc limit $1) latest
