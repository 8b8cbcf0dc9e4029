-- A clean stop: what was confirmed is written down, the lanes are free, the incarnation is over.
with ended as (
    update dueline.relay
       set ended_at       = clock_timestamp(),
           ended_why      = $2::text,
           watermark      = $3::timestamptz,
           confirmed_upto = $4::timestamptz,
           exceptions     = $5::bigint[]
     where epoch = $1::bigint
       and ended_at is null
    returning epoch
), freed as (
    update dueline.lane l
       set epoch = null, taken_at = null
      from ended
     where l.epoch = ended.epoch
    returning l.lane
)
select (select count(*) from ended) as ended, (select count(*) from freed) as freed
