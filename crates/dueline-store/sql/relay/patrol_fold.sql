-- Folds the counts of stopped duplicates into one row per queue, layer and hour; an hour that is one row already
-- stays as it is.
with crowded as (
    select s.queue, s.layer, date_trunc('hour', s.at, 'UTC') as hour
      from dueline.duplicate_stop s
     where s.at < date_trunc('hour', statement_timestamp(), 'UTC')
     group by 1, 2, 3
    having count(*) > 1
), gone as (
    delete from dueline.duplicate_stop s
     using crowded c
     where s.queue = c.queue
       and s.layer = c.layer
       and s.at >= c.hour
       and s.at < c.hour + interval '1 hour'
    returning c.hour, s.queue, s.layer, s.n
)
insert into dueline.duplicate_stop (at, queue, layer, n)
select g.hour, g.queue, g.layer, sum(g.n)
  from gone g
 group by g.hour, g.queue, g.layer
