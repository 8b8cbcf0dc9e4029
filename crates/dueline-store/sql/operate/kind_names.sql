select name from dueline.kind order by name
