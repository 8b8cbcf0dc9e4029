select s.history::text as history, t.payload::text as payload, t.headers::text as headers
from dueline.stranded s
join dueline.task t on t.id = s.id
where s.id = $1
