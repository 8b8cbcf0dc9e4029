select receipt, (extract(epoch from due_at) * 1000000)::bigint as due_at
  from dueline.reschedule($1, $2, delay => $3 * interval '1 millisecond',
                          reason => 'the customer asked for more time')
