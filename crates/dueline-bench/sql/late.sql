-- How late the tasks of the orders $1 to $2 were, in milliseconds: how many they are; p50, p99, p99.9 and max of
-- due → claimed, → effect, → settled; and how many have no effect.
-- By the hash, for millions of other tasks may wait in the same table.
with late as (
    select 1000 * extract(epoch from t.published_at - t.due_at)::float8 as claimed,
           1000 * extract(epoch from o.closed_at - t.due_at)::float8    as effect,
           1000 * extract(epoch from t.finished_at - t.due_at)::float8  as settled
      from orders o
      join dueline.task t on t.key_hash = dueline.key_hash($3, $4, o.id::text)
     where o.id between $1 and $2
)
select count(*),
       percentile_disc(array[0.5, 0.99, 0.999, 1]::float8[]) within group (order by claimed),
       percentile_disc(array[0.5, 0.99, 0.999, 1]::float8[]) within group (order by effect),
       percentile_disc(array[0.5, 0.99, 0.999, 1]::float8[]) within group (order by settled),
       count(*) filter (where effect is null)
  from late
