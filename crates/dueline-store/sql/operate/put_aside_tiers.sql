-- Tiers that are about to go make room for the ranks of those that stay.
update dueline.tier set rank = rank + 100000 where queue = $1 and not name = any ($2::text[])
