-- The bodies of claimed tasks, one row of arrays (null when none of them lives). A body whose generation is not the
-- claim's belongs to a newer alarm; the caller leaves it out. The columns are named as those of the claim's answer.
select array_agg(t.id) as body_id, array_agg(t.generation) as body_generation, array_agg(t.kind) as kind,
       array_agg(t.key::text) as key, array_agg(t.key_hash) as key_hash,
       array_agg(t.due_at::timestamptz) as due_at,
       array_agg(t.payload::text) as payload, array_agg(t.headers::text) as headers
  from dueline.task t
 where t.id = any ($1::bigint[])
   and t.state = 'live'
