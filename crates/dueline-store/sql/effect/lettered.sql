-- The dead letter is written. $1 id, $2 generation of the dead row.
update dueline.stranded
set lettered_at = clock_timestamp()
where id = $1 and generation = $2 and lettered_at is null
