-- Bytes of WAL since the cluster was made: of the whole server, like the processor's time.
select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8
