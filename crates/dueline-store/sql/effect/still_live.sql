-- After a COMMIT whose fate is unknown, on a new connection: which of the tasks stand as they stood before it?
-- $1 ids, $2 key hashes, $3 generations, $4 attempts.
select m.ord
from unnest($1::bigint[], $2::uuid[], $3::integer[], $4::integer[])
     with ordinality as m (id, key_hash, generation, attempt, ord)
join dueline.task t on t.id = m.id
where t.key_hash = m.key_hash and t.generation = m.generation and t.attempt = m.attempt and t.state = 'live'
