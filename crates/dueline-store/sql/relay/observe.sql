-- Every relay that has not ended, with what an observer needs to judge it.
select r.epoch, r.name, r.heartbeat_no,
       r.heartbeat_at < clock_timestamp() - $1::interval as overdue,
       r.cannot_produce is not null as cannot_produce
  from dueline.relay r
 where r.ended_at is null
 order by r.epoch
