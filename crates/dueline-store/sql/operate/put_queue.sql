insert into dueline.queue (name, slots, consumer_group) values ($1, $2, $3)
on conflict (name) do update set slots = excluded.slots, consumer_group = excluded.consumer_group
