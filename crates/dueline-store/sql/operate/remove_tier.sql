delete from dueline.tier where queue = $1 and name = $2
