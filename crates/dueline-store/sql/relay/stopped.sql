-- Counts duplicates that the scan itself stopped.
insert into dueline.duplicate_stop (queue, layer, n)
select s.queue, 'scan', s.n
  from unnest($1::text[], $2::bigint[]) as s (queue, n)
