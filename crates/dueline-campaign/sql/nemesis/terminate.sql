select count(pg_terminate_backend(pid))
  from pg_stat_activity
 where datname = current_database() and application_name = $1
