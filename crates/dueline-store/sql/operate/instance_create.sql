insert into dueline.instance (name, uuid, system_identifier, timeline, schema_version, oldest_binary)
values ($1, gen_random_uuid(), $2, $3, $4, $5)
on conflict (singleton) do nothing
