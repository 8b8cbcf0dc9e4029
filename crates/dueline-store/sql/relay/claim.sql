-- scheduled → published, and the bodies of what was claimed: see the function.
-- $1 to $3 lanes and cursors, $4 the relay, $5 budget, $6 lease, $7 nothing later than this.
select now, ready_lanes, id, lane, next_at, generation, attempt, fence, claim_no, claimed_at,
       body_id, body_generation, kind, key, key_hash, due_at, payload, headers
  from dueline.claim($1::integer[], $2::timestamptz[], $3::bigint[], $4::bigint, $5::integer, $6::interval,
                     $7::timestamptz)
