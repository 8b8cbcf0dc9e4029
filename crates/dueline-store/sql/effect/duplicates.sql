-- $1 queue, $2 layers, $3 counts.
select dueline.count_stops($1, $2, $3)
