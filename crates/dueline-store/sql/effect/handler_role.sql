-- May this session become the handlers' role, and is that role kept away from our tables?
select exists (select from pg_roles where rolname = $1),
       case when exists (select from pg_roles where rolname = $1)
            then pg_has_role(current_user, $1, 'member') else false end,
       case when exists (select from pg_roles where rolname = $1)
            then has_table_privilege($1, 'dueline.task', 'insert, update, delete')
              or has_table_privilege($1, 'dueline.due', 'insert, update, delete')
              or has_table_privilege($1, 'dueline.dedupe', 'insert, update, delete')
            else false end,
       pg_is_in_recovery()
