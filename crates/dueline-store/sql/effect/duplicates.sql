-- How many duplicates each layer stopped in this batch. $1 queue, $2 layers, $3 counts.
insert into dueline.duplicate_stop (queue, layer, n)
select $1, s.layer, s.n
from unnest($2::text[], $3::bigint[]) as s (layer, n)
where s.n > 0
