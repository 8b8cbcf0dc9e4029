select count(*) from job where finished_at >= $1 and finished_at < $2
