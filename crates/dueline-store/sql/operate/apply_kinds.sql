select name, queue, effect, backoff_ms, max_payload_bytes,
       (extract(epoch from age_limit) * 1000000)::bigint as age_limit_us
from dueline.kind
order by name
