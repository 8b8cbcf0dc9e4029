select queue, name, rank, (extract(epoch from max_delay) * 1000000)::bigint as max_delay_us
from dueline.tier
order by queue, rank
