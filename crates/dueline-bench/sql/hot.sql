-- Which part of all updates stayed on its page and touched no index.
select relname::text, n_tup_hot_upd::float8 / n_tup_upd
  from pg_stat_user_tables
 where (schemaname = 'dueline' and relname in ('task', 'due') or relname = 'orders') and n_tup_upd > 0
 order by relname
