delete from dueline.queue where name = $1
