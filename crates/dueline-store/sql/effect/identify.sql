-- What the row says of a broken message whose id can be read. $1 id.
select t.key_hash, t.generation, t.attempt, t.state, t.kind, t.key, d.lease_until is not null as leased
from dueline.task t
left join dueline.due d on d.id = t.id
where t.id = $1
