select name, slots, consumer_group from dueline.queue order by name
