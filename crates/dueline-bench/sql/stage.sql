-- The business table: what a handler closes. Room for the update of every row on its own page.
create table orders (
    id         bigint primary key,
    status     text not null default 'unpaid',
    closes     integer not null default 0,
    closed_at  timestamptz
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
        autovacuum_vacuum_cost_delay = 0);

-- What another team has handled, where it has no access to dueline's tables.
create table team_handled (key_hash uuid primary key);
