insert into dueline.kind (name, queue, effect, backoff_ms, max_payload_bytes, age_limit)
values ($1, $2, $3, $4, $5, $6)
on conflict (name) do update
set queue = excluded.queue, effect = excluded.effect, backoff_ms = excluded.backoff_ms,
    max_payload_bytes = excluded.max_payload_bytes, age_limit = excluded.age_limit
