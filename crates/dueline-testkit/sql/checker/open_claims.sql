-- Claims that nobody has answered yet, with the time of the claim in microseconds since the Unix epoch.
select id, generation, attempt, claim_no, (extract(epoch from claimed_at) * 1000000)::bigint
  from dueline.due
 where lease_until is not null
