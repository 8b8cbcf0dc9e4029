-- Transactions of others that have read the lanes (or the routes to them) and are still open, oldest first.
select l.pid, coalesce(a.application_name, '') as application_name,
       coalesce((extract(epoch from clock_timestamp() - a.xact_start) * 1000000)::bigint, 0) as age_us
from pg_locks l
join pg_stat_activity a on a.pid = l.pid
where l.relation in ('dueline.route'::regclass, 'dueline.lane'::regclass) and l.granted and l.pid <> pg_backend_pid()
  and l.database = (select oid from pg_database where datname = current_database())
order by a.xact_start
limit 1
