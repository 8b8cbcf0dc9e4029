-- Every lane and who owns it. An owner that has ended, or that nobody knows, is none.
select l.lane, l.queue, l.tier, r.epoch as owner
  from dueline.lane l
  left join dueline.relay r on r.epoch = l.epoch and r.ended_at is null
 order by l.lane
