-- What a migration changed; a newer schema is never written down as an older one.
update dueline.instance
set schema_version = $1, oldest_binary = $2, changed_at = clock_timestamp()
where schema_version < $1
