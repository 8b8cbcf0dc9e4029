create table plain (
    id       bigint generated always as identity,
    key      text unique,
    due_at   timestamptz,
    payload  jsonb
)
