-- Who owns what, and who may do what. A later migration that adds an object repeats the first block.
--
--   dueline_owner     owns every object of the schema; the functions run as it
--   dueline_schedule  may call the client functions, and touches no table
--   dueline_worker    may tell what became of a task that it handles: begin, complete, fail; touches no table
--   dueline_operate   what relay, consumer and command line log in as: all that, the verdicts, and the tables
--   dueline_handler   what a handler's SQL runs as: nothing here

do $$
declare
    statement text;
begin
    -- A migrating user that is no superuser needs to be a member of the owner to give objects away.
    if not pg_has_role(current_user, 'dueline_owner', 'member') then
        execute format('grant dueline_owner to %I', current_user);
    end if;
    alter schema dueline owner to dueline_owner;
    for statement in
        select format('alter table %s owner to dueline_owner', c.oid::regclass)
        from pg_class c
        where c.relnamespace = 'dueline'::regnamespace and c.relkind in ('r', 'p', 'v', 'm')
        union all
        select format('alter routine %s owner to dueline_owner', p.oid::regprocedure)
        from pg_proc p
        where p.pronamespace = 'dueline'::regnamespace
        union all
        select format('alter type %s owner to dueline_owner', t.oid::regtype)
        from pg_type t
        left join pg_class c on c.oid = t.typrelid
        where t.typnamespace = 'dueline'::regnamespace and (c.relkind = 'c' or t.typtype = 'd')
    loop
        execute statement;
    end loop;
end $$;

revoke all on schema dueline from public;
revoke all on all tables in schema dueline from public;
revoke all on all sequences in schema dueline from public;
revoke all on all routines in schema dueline from public;

do $$ begin
    if not pg_has_role('dueline_operate', 'dueline_schedule', 'member') then
        grant dueline_schedule to dueline_operate;
    end if;
    -- A consumer steps down to the handlers' role for each handler statement.
    if not pg_has_role('dueline_operate', 'dueline_handler', 'member') then
        grant dueline_handler to dueline_operate;
    end if;
end $$;

grant usage on schema dueline to dueline_schedule, dueline_worker;
grant execute on function
    dueline.schedule, dueline.schedule_many, dueline.reschedule, dueline.cancel, dueline.cancel_or_raise,
    dueline.cancel_many, dueline.get, dueline.key_hash
to dueline_schedule;
grant execute on function dueline.begin, dueline.complete, dueline.fail to dueline_worker;

grant select, insert, update, delete on all tables in schema dueline to dueline_operate;
grant usage, select, update on all sequences in schema dueline to dueline_operate;
grant execute on all routines in schema dueline to dueline_operate;

-- The applied migrations are read by everybody who checks versions, and written by the owner. The table is
-- absent where the files are applied by hand.
do $$ begin
    if to_regclass('dueline.migration') is not null then
        revoke insert, update, delete on dueline.migration from dueline_operate;
    end if;
end $$;
