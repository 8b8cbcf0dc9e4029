select max(finished_at) from dueline.task
