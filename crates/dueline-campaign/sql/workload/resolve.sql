select receipt, (extract(epoch from due_at) * 1000000)::bigint from dueline.resolve($1, $2, 'clerk', 'campaign')
