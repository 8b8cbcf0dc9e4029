select receipt, (extract(epoch from due_at) * 1000000)::bigint from dueline.replay($1, $2, $3, 'clerk')
