-- Which cluster this is. The timeline comes from the name of the WAL file that is being written: the control
-- file follows a promotion only with the next checkpoint. A standby writes none.
select pg_is_in_recovery() as standby,
       (select system_identifier::text from pg_control_system()) as system_identifier,
       case when pg_is_in_recovery() then 0
            else ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer
       end as timeline
