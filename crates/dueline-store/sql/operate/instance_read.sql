select name, uuid, system_identifier, timeline, schema_version, oldest_binary
from dueline.instance
