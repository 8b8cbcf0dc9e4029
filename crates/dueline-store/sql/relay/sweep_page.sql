-- One page of the sweep: up to $5 alarms per lane behind what the scan has passed ($4), without a watermark.
-- Returned are the alarms that need something, and the last alarm of each lane whose page was full (`page_end`),
-- from where the walk goes on.
with page as (
    select d.*, row_number() over (partition by a.lane order by d.next_at, d.id) as place
      from unnest($1::integer[], $2::timestamptz[], $3::bigint[], $4::timestamptz[])
           as a (lane, cursor_at, cursor_id, upto)
     cross join lateral (
            select d.lane, d.id, d.next_at, d.generation, d.fence, d.lease_until, d.claimed_at,
                   d.claim_epoch, d.claim_no, d.attempt, d.unanswered,
                   d.extensions
              from dueline.due d
             where d.lane = a.lane
               and (d.next_at, d.id) > (a.cursor_at, a.cursor_id)
               and d.next_at <= a.upto
               and d.next_at <= statement_timestamp()
             order by d.next_at, d.id
             limit $5::integer
           ) d
), judged as (
    select p.*,
           p.place = $5::integer as page_end,
           p.lease_until <= clock_timestamp() as lease_over,
           p.lease_until > clock_timestamp() + $6::interval as lease_too_long,
           p.claim_epoch is not null and (r.epoch is null or r.ended_at is not null) as orphan,
           case when p.claim_epoch is null or r.ended_at is null and r.epoch is not null then false
                when r.epoch is null then true
                else p.claimed_at > r.confirmed_upto or p.id = any (r.exceptions)
            end as unconfirmed
      from page p
      left join dueline.relay r on r.epoch = p.claim_epoch
)
select statement_timestamp() as now,
       j.lane, j.id, j.next_at, j.generation, j.fence, j.claimed_at,
       j.claim_no - j.attempt as tries, j.unanswered, j.extensions,
       j.page_end,
       case when j.lease_until is null then 'missed'
            when j.orphan and j.unconfirmed then 'orphan'
            when j.lease_over or j.lease_too_long then 'lease_over'
            else 'fine'
        end as verdict
  from judged j
 where j.page_end
    or j.lease_until is null
    or j.lease_over
    or j.lease_too_long
    or j.orphan and j.unconfirmed
 order by j.lane, j.next_at, j.id
