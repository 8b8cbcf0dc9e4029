-- The bodies of claimed tasks. A body whose generation is not the claim's belongs to a newer alarm; the caller
-- leaves it out.
select t.id, t.generation, t.kind, t.key, t.key_hash, t.due_at,
       t.payload::text as payload, t.headers::text as headers
  from dueline.task t
 where t.id = any ($1::bigint[])
   and t.state = 'live'
