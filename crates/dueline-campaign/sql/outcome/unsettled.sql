-- What is not at rest yet: live tasks, and dead ones without a letter.
select (select count(*) from dueline.due) + (select count(*) from dueline.stranded where lettered_at is null)
