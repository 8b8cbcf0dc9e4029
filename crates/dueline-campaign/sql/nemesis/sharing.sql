-- How many living relays share the lanes; null while some lane is nobody's, or a silent relay's.
select case when bool_and(r.epoch is not null) then count(distinct r.epoch) end
  from dueline.lane as l
  left join dueline.relay as r
    on r.epoch = l.epoch and r.ended_at is null and r.heartbeat_at > clock_timestamp() - interval '1 second'
