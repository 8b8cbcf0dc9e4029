-- Under the lock of instance_lock.sql. $2 = the instance becomes another one, with a uuid of its own.
update dueline.instance
set name = $1, uuid = case when $2 then gen_random_uuid() else uuid end, system_identifier = $3, timeline = $4,
    changed_at = clock_timestamp()
returning name, uuid, system_identifier, timeline, schema_version, oldest_binary
