-- When the next waiting alarm of these lanes rings: until then an idle relay sleeps.
select min(f.next_at) as next_at, statement_timestamp() as now
  from unnest($1::integer[], $2::timestamptz[], $3::bigint[]) as a (lane, cursor_at, cursor_id)
 cross join lateral (
        select d.next_at
          from dueline.due d
         where d.lane = a.lane
           and (d.next_at, d.id) > (a.cursor_at, a.cursor_id)
           and d.lease_until is null
         order by d.next_at, d.id
         limit 1
       ) f
