insert into dueline.tier (queue, name, rank, max_delay) values ($1, $2, $3, $4)
on conflict (queue, name) do update set rank = excluded.rank, max_delay = excluded.max_delay
