select dueline.return_early($1, $2, $3)
