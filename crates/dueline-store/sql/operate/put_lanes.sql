insert into dueline.lane (queue, tier, slot)
select $1, $2, s.slot
from generate_series(0, $3::integer - 1) s (slot)
on conflict (queue, tier, slot) do nothing
