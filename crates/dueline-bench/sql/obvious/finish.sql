update job set state = 2, finished_at = clock_timestamp() where id = any ($1::bigint[]) and state = 1
