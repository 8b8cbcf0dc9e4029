-- How many alarms lanes have, counted up to a bound.
select count(*) as alarms
from (select from dueline.due d where d.lane = any ($1::integer[]) limit $2) bounded
