-- $1 ids, $2 key hashes, $3 generations, $4 attempts, $5 outcomes, $6 reasons, $7 pauses asked for (ms), $8 lease.
select dueline.settle_outcomes($1, $2, $3, $4, $5, $6, $7, $8)
