-- The dead letter of this death is written.
update dueline.stranded
   set lettered_at = clock_timestamp()
 where id = $1::bigint
   and generation = $2::integer
   and lettered_at is null
