select count(*) from dueline.task where finished_at >= $1 and finished_at < $2
