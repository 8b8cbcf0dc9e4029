-- The youngest dead are as if their consumers had died between the letter and its note.
update dueline.stranded set lettered_at = null
 where id in (select id from dueline.stranded where lettered_at is not null order by died_at desc limit 5)
