-- The tables of dueline. ARCHITECTURE.md argues the shape; performance figures are in docs/performance.md.
--
-- Five roles without login: the owner of everything here, and four that are granted to people and programs.
-- Roles belong to the whole cluster, so another database of it may have made them already, even at this
-- very moment.
do $$
declare
    role_name text;
begin
    foreach role_name in array array['dueline_owner', 'dueline_schedule', 'dueline_worker', 'dueline_operate',
                                   'dueline_handler'] loop
        -- Looked up first: where an administrator has made them, the migrating user need not have CREATEROLE.
        continue when exists (select from pg_roles where rolname = role_name);
        begin
            execute format('create role %I nologin', role_name);
        exception when duplicate_object or unique_violation then
            null;
        end;
    end loop;
end $$;

create schema if not exists dueline;

-- Rules for what the hot tables (task, due, dedupe, relay) are given from outside. As domains, not as CHECKs of the
-- tables: a table's CHECK is parsed from its text again by every statement that writes the table, and a dozen of
-- them cost a single `schedule` more than its inserts do. What only our own statements could break, and rules over
-- several columns, stand in crates/dueline-testkit/sql/row_rules.sql: every test runs under those too.
create domain dueline.deadline as timestamptz
    -- Within the years that RFC 3339 can write: the deadline travels in a message header.
    check (value >= '0001-01-01 00:00:00+00' and value < '9999-12-31 00:00:00+00');
create domain dueline.task_state as text check (value in ('live', 'done', 'skipped', 'cancelled', 'dead'));
create domain dueline.task_key as text check (octet_length(value) between 1 and 512);
create domain dueline.task_payload as jsonb check (pg_column_size(value) <= 1048576);
create domain dueline.task_headers as jsonb
    check (jsonb_typeof(value) = 'object' and pg_column_size(value) <= 16384);
create domain dueline.key_outcome as text check (value in ('done', 'in_progress', 'failed'));
create domain dueline.claim_exceptions as bigint[] check (cardinality(value) <= 1000);

-- Who this database is. The name, the uuid and the timeline are the `source` of every message.
create table dueline.instance (
    singleton          boolean primary key default true check (singleton),
    name               text not null check (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    uuid               uuid not null,
    system_identifier  text not null,
    timeline           integer not null check (timeline > 0),
    schema_version     integer not null,
    oldest_binary      text not null,
    changed_at         timestamptz not null default clock_timestamp()
);

create table dueline.queue (
    name            text primary key check (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    slots           integer not null check (slots between 1 and 64),
    consumer_group  text not null check (consumer_group <> '')
);

-- The delay tiers of a queue, sorted by rank; the last also takes every longer delay.
create table dueline.tier (
    queue      text not null references dueline.queue (name),
    name       text not null check (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$' and name not in ('dlq', 'outcomes')),
    rank       integer not null,
    max_delay  interval not null check (max_delay > interval '0'),
    primary key (queue, name),
    unique (queue, rank) deferrable initially deferred
);

create table dueline.kind (
    name               text primary key check (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    queue              text not null references dueline.queue (name),
    -- here: in this database's transaction · elsewhere: by somebody who begins it here first · team: by another
    -- team's consumer, which may act on a message whenever it reads one.
    effect             text not null check (effect in ('here', 'elsewhere', 'team')),
    backoff_ms         bigint[] not null check (cardinality(backoff_ms) <= 100 and 0 <= all (backoff_ms)),
    max_payload_bytes  integer not null check (max_payload_bytes between 0 and 1048576),
    age_limit          interval not null check (age_limit > interval '0')
);

-- One row per queue × tier × slot: the unit of ownership and of fairness. `epoch` is the owning relay's
-- incarnation (dueline.relay.epoch); null when nobody owns the lane. Written only when ownership changes.
create table dueline.lane (
    lane      integer generated always as identity primary key,
    queue     text not null,
    tier      text not null,
    slot      integer not null check (slot >= 0),
    epoch     bigint,
    taken_at  timestamptz,
    unique (queue, tier, slot),
    foreign key (queue, tier) references dueline.tier (queue, name),
    check ((epoch is null) = (taken_at is null))
) with (fillfactor = 50);

-- What scheduling needs to know of a kind, in one look-up: a join of the tables above cost a single `schedule` as
-- much as an insert. Written by triggers of theirs, and so never behind them.
create table dueline.route (
    kind               text primary key,
    queue              text not null,
    effect             text not null,
    max_payload_bytes  integer not null,
    slots              integer not null,
    -- The tiers by their longest delay, and for `width_bucket` the delays that are too long for each: a delay of
    -- exactly max_delay stays. Empty when the queue has none.
    tiers              text[] not null,
    beyond             interval[] not null,
    -- The lanes: tier after tier, `slots` each; null where `dueline apply` has not made one.
    lanes              integer[] not null
);

create function dueline.keep_routes() returns trigger
language plpgsql volatile security definer
set search_path = pg_catalog, dueline, pg_temp
as $$
begin
    delete from dueline.route r where not exists (select from dueline.kind k where k.name = r.kind);
    insert into dueline.route as r
    select k.name, k.queue, k.effect, k.max_payload_bytes, q.slots, coalesce(w.tiers, '{}'),
           coalesce(w.beyond, '{}'),
           array(select l.lane
                 from unnest(w.tiers) with ordinality as t (name, ord)
                 cross join generate_series(0, q.slots - 1) as s (slot)
                 left join dueline.lane l on l.queue = q.name and l.tier = t.name and l.slot = s.slot
                 order by t.ord, s.slot)
    from dueline.kind k
    join dueline.queue q on q.name = k.queue
    cross join lateral (
        select array_agg(t.name order by t.max_delay, t.rank) as tiers,
               array_agg(t.max_delay + interval '1 microsecond' order by t.max_delay, t.rank) as beyond
        from dueline.tier t where t.queue = q.name
    ) w
    on conflict (kind) do update
    set queue = excluded.queue, effect = excluded.effect, max_payload_bytes = excluded.max_payload_bytes,
        slots = excluded.slots, tiers = excluded.tiers, beyond = excluded.beyond, lanes = excluded.lanes
    where r is distinct from excluded;
    return null;
end $$;

create trigger routes after insert or update or delete on dueline.queue
    for each statement execute function dueline.keep_routes();
create trigger routes after insert or update or delete on dueline.tier
    for each statement execute function dueline.keep_routes();
create trigger routes after insert or update or delete on dueline.kind
    for each statement execute function dueline.keep_routes();
-- Not for a lane's owner, which relays write.
create trigger routes after insert or delete or update of queue, tier, slot on dueline.lane
    for each statement execute function dueline.keep_routes();

-- One row per incarnation of a relay: a relay that was declared dead comes back as another one.
-- A claim (due.claim_epoch, due.claimed_at) is known to be delivered when claimed_at <= confirmed_upto and
-- the task is not among the exceptions.
create table dueline.relay (
    epoch           bigint generated always as identity primary key,
    name            text not null,
    version         text not null,
    started_at      timestamptz not null default clock_timestamp(),
    heartbeat_at    timestamptz not null default clock_timestamp(),
    heartbeat_no    bigint not null default 0,
    watermark       timestamptz not null default '-infinity',
    confirmed_upto  timestamptz not null default '-infinity',
    exceptions      dueline.claim_exceptions not null default '{}',
    cannot_produce  text,
    ended_at        timestamptz,
    ended_why       text,
    check ((ended_at is null) = (ended_why is null))
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);

-- One row per task, from schedule to the end of retention. `state` is in no index and no index predicate, so
-- that finishing can be a HOT update; the fill factor leaves the room for it (tasks finish in creation order,
-- whole pages at a time).
create table dueline.task (
    id            bigint generated always as identity primary key,
    key_hash      uuid not null unique,
    due_at        dueline.deadline not null,
    created_at    timestamptz not null default clock_timestamp(),
    published_at  timestamptz,
    finished_at   timestamptz,
    generation    integer not null default 0,
    attempt       integer not null default 0,
    -- The alarm's last fence, while there is no alarm: the next alarm goes on from it.
    fence         integer,
    state         dueline.task_state not null default 'live',
    kind          text not null,
    key           dueline.task_key not null,
    tier          text not null,
    payload       dueline.task_payload,
    headers       dueline.task_headers,
    last_error    text,
    -- Somebody asked for a cancel while a call elsewhere was running: a failure then ends in `cancelled`.
    cancel_wished_at  timestamptz,
    -- A message of an earlier life went to a team that does not `begin`: it can be handled at any time.
    may_have_run  boolean not null default false
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_scale_factor = 0,
        autovacuum_vacuum_insert_threshold = 200000, autovacuum_analyze_scale_factor = 0,
        autovacuum_analyze_threshold = 100000);

-- The alarm clock of each live task: narrow, and gone when the task is finished. What a claim writes is not
-- indexed, so a claim is a HOT update. Generation and attempt are copies, so that one row gives a consistent
-- pair. `fence` goes up by one with every write.
create table dueline.due (
    id           bigint primary key,
    next_at      timestamptz not null,
    lease_until  timestamptz,
    claimed_at   timestamptz,
    claim_epoch  bigint,
    lane         integer not null,
    generation   integer not null,
    attempt      integer not null,
    claim_no     integer not null default 0,
    fence        integer not null default 0,
    unanswered   smallint not null default 0,
    extensions   smallint not null default 0
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0,
        autovacuum_analyze_threshold = 100000);

create index due_scan on dueline.due (lane, next_at, id);

-- At most one effect per key: the last layer that stops a duplicate. For effects elsewhere also who is running
-- the key (token) until when.
create table dueline.dedupe (
    key_hash     uuid primary key,
    finished_at  timestamptz,
    until        timestamptz,
    generation   integer not null,
    attempt      integer not null,
    outcome      dueline.key_outcome not null,
    unknown      boolean not null default false,
    token        uuid
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_scale_factor = 0,
        autovacuum_vacuum_insert_threshold = 500000);

-- The dead, until a person replays, resolves or discards them. A row stands here exactly as long as its task
-- is dead. `lettered_at` is null until the dead letter is known to be written.
create table dueline.stranded (
    id           bigint primary key references dueline.task (id),
    queue        text not null,
    kind         text not null,
    key          text not null,
    generation   integer not null,
    attempts     integer not null,
    reason       text not null check (reason in ('exhausted', 'permanent', 'crashes', 'too_old', 'unanswered',
                                                 'outcome_unknown', 'undecodable', 'unknown_kind', 'oversized')),
    error        text not null default '',
    history      jsonb not null default '[]',
    died_at      timestamptz not null default clock_timestamp(),
    lettered_at  timestamptz
);

create index stranded_without_letter on dueline.stranded (died_at) where lettered_at is null;
create index stranded_by_queue on dueline.stranded (queue, died_at);

-- Every rare transition, with who and why. The hot path (claim, publish, settle) writes none.
create table dueline.task_event (
    event       bigint generated always as identity primary key,
    task_id     bigint not null,
    at          timestamptz not null default clock_timestamp(),
    step        text not null,
    from_state  text,
    to_state    text,
    generation  integer not null,
    attempt     integer not null,
    actor       text not null default session_user,
    detail      jsonb
);

create index task_event_by_task on dueline.task_event (task_id, event);

-- Crash marks: what a consumer was about to handle when it was last heard of.
create table dueline.consuming (
    consumer_group  text not null,
    topic           text not null,
    partition       integer not null,
    record_offset   bigint not null,
    tries           integer not null check (tries > 0),
    marked_at       timestamptz not null default clock_timestamp(),
    primary key (consumer_group, topic, partition)
);

-- How often each layer stopped a duplicate (I5). Appended without contention, folded by the patrol.
create table dueline.duplicate_stop (
    at     timestamptz not null default clock_timestamp(),
    queue  text not null,
    layer  text not null check (layer in ('scan', 'batch', 'guard', 'dedupe', 'settle')),
    n      bigint not null check (n > 0)
);

-- The topics as relays have seen them: an offset says something about a claim only while the topic is the same
-- one as at the claim.
create table dueline.topic_seen (
    topic       text primary key,
    topic_id    text not null,
    partitions  integer not null,
    since       timestamptz not null default clock_timestamp()
);

-- Where the retention patrol stands in each table: a block number.
create table dueline.patrol (
    table_name  text primary key,
    next_block  bigint not null default 0,
    at          timestamptz not null default clock_timestamp()
);
