-- Gives lanes back, so that another relay may take them.
update dueline.lane
   set epoch = null, taken_at = null
 where lane = any ($2::integer[])
   and epoch = $1::bigint
returning lane
