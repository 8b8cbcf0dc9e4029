select receipt, (extract(epoch from due_at) * 1000000)::bigint
  from dueline.reschedule($1, $2, delay => $3::bigint * interval '1 millisecond', reason => 'campaign')
