-- The message still waits in its topic: the lease goes on, nothing is published. Guarded as a publish is.
with locked as (
    select d.id, s.lease_us
      from unnest($1::bigint[], $2::integer[], $3::bigint[]) as s (id, fence, lease_us)
      join dueline.due d on d.id = s.id and d.fence = s.fence
     where d.next_at <= statement_timestamp()
       and d.lease_until is not null
     order by d.id
       for update of d skip locked
)
update dueline.due d
   set lease_until = clock_timestamp() + l.lease_us * interval '1 microsecond',
       extensions  = d.extensions + 1,
       fence       = d.fence + 1
  from locked l
 where d.id = l.id
returning d.id
