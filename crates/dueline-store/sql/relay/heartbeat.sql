-- The relay lives. No row: it was declared dead meanwhile, and must start again as another incarnation.
update dueline.relay
   set heartbeat_at   = clock_timestamp(),
       heartbeat_no   = heartbeat_no + 1,
       watermark      = $2::timestamptz,
       confirmed_upto = $3::timestamptz,
       exceptions     = $4::bigint[],
       cannot_produce = $5::text
 where epoch = $1::bigint
   and ended_at is null
returning clock_timestamp() as now
