-- Declares a silent relay dead and takes its lanes, in one statement. Nothing happens when it gave a sign of life
-- after the one that the observer saw, or when its silence is shorter than $4 by this database's clock.
-- One row per lane, or one row without a lane when the dead relay had none.
with dead as (
    update dueline.relay r
       set ended_at  = clock_timestamp(),
           ended_why = 'silent; declared dead by relay ' || $1::bigint
     where r.epoch = $2::bigint
       and r.heartbeat_no = $3::bigint
       and r.ended_at is null
       and r.heartbeat_at < clock_timestamp() - $4::interval
    returning r.epoch, r.watermark
), taken as (
    update dueline.lane l
       set epoch = $1::bigint, taken_at = clock_timestamp()
      from dead
     where l.epoch = dead.epoch
       and exists (select from dueline.relay r where r.epoch = $1::bigint and r.ended_at is null)
    returning l.lane
)
select dead.watermark, taken.lane
  from dead
  left join taken on true
