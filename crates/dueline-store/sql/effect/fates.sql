-- After a COMMIT whose fate is unknown, on a new connection: how do the tasks stand, of those whose row is still of
-- the message's try? The lock waits for a COMMIT that is still under way, whose rows would otherwise look live.
-- $1 ids, $2 key hashes, $3 generations, $4 attempts.
select t.id, t.state::text as state, t.finished_at
from unnest($1::bigint[], $2::uuid[], $3::integer[], $4::integer[]) as m (id, key_hash, generation, attempt)
join dueline.task t on t.id = m.id
where t.key_hash = m.key_hash and t.generation = m.generation and t.attempt = m.attempt
order by t.id
for share of t
