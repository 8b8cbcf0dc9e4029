-- A kind's age limit. $1 kind, $2 seconds.
update dueline.kind set age_limit = make_interval(secs => $2) where name = $1
