delete from dueline.kind where name = $1
