insert into plain (key, due_at) values ($1, clock_timestamp() + interval '1 hour')
