insert into plain (key, due_at) select key, clock_timestamp() + interval '1 hour' from unnest($1::text[]) as key
