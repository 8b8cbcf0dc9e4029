-- The business table of the sample configuration, made when the container's database is empty.
create table orders (
    id         bigint generated always as identity primary key,
    status     text not null default 'unpaid' check (status in ('unpaid', 'paid', 'closed')),
    created_at timestamptz not null default now(),
    closed_at  timestamptz
);

-- SQL handlers run as this role; `dueline migrate` finds it here. It gets what the handler needs, and
-- nothing of the schema `dueline`.
create role dueline_handler nologin;
grant select, update on orders to dueline_handler;
