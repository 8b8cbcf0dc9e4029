select receipt, (extract(epoch from due_at) * 1000000)::bigint from dueline.cancel($1, $2, reason => 'campaign')
