-- The obvious design: one table, a state, a partial index over what waits, and the keys that were handled as text.
-- Storage and vacuum are left as the server has them, as whoever writes this first leaves them.
create table job (
    id           bigint generated always as identity primary key,
    kind         text not null,
    key          text not null,
    payload      jsonb,
    state        smallint not null default 0,
    attempt      integer not null default 0,
    due_at       timestamptz not null,
    created_at   timestamptz not null default clock_timestamp(),
    lease_until  timestamptz,
    finished_at  timestamptz,
    unique (kind, key)
);

create index job_waiting on job (due_at) where state = 0;

create table handled (
    kind        text not null,
    key         text not null,
    handled_at  timestamptz not null default clock_timestamp(),
    primary key (kind, key)
)
