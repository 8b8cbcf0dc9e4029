-- Takes lanes that nobody owns, at most $3 of those named. Another relay that takes at the same moment is passed by.
with free as (
    select l.lane
      from dueline.lane l
     where l.lane = any ($2::integer[])
       and not exists (select from dueline.relay r where r.epoch = l.epoch and r.ended_at is null)
     order by l.lane
     limit $3::integer
       for update of l skip locked
)
update dueline.lane l
   set epoch = $1::bigint, taken_at = clock_timestamp()
 where l.lane = any (array(select f.lane from free f))
   and exists (select from dueline.relay r where r.epoch = $1::bigint and r.ended_at is null)
returning l.lane
