-- Who this database says that it is, and what the cluster says.
select i.name, i.uuid, i.timeline,
       i.system_identifier = (select c.system_identifier::text from pg_control_system() c) as same_cluster,
       (select k.timeline_id from pg_control_checkpoint() k) as actual_timeline,
       pg_is_in_recovery() as standby
  from dueline.instance i
