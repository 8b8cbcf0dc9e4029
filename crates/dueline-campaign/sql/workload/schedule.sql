-- One task. $1 kind, $2 key, $3 delay in milliseconds. A key that is cancelled or skipped is opened again.
select receipt, (extract(epoch from due_at) * 1000000)::bigint
  from dueline.schedule($1, $2, delay => $3::bigint * interval '1 millisecond')
