select count(*) from dueline.task
