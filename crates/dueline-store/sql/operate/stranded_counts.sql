select queue, count(*) as dead, min(died_at) as oldest
from dueline.stranded
where $1::text is null or queue = $1
group by queue
order by queue
