-- $1 ids, $2 key hashes, $3 generations, $4 attempts, $5 tokens, $6 outcomes, $7 whether they are in doubt, $8 reasons,
-- $9 pauses that were asked for, in milliseconds.
select verdict, generation, attempt, reason, at
from dueline.finish_calls($1, $2, $3, $4, $5, $6, $7, $8, $9)
