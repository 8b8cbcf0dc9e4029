-- Two processes that notice a failover at once must move the sequences once.
select name, uuid, system_identifier, timeline, schema_version, oldest_binary
from dueline.instance
for update
