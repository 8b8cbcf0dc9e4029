-- The campaign's business: orders that are closed unless somebody pays, refunds through a payment gateway,
-- parcels that a handler in Rust ships.
create schema shop;

create table shop.orders (
    id         bigint primary key,
    status     text not null default 'unpaid' check (status in ('unpaid', 'paid', 'closed')),
    paid_at    timestamptz,
    closed_at  timestamptz
);

create table shop.refunds (
    id                  bigint primary key,
    amount              text not null default '12.50',
    gateway_down_until  timestamptz not null default '-infinity',
    times               integer not null default 0,
    receipt             text
);

create table shop.parcels (
    id     bigint primary key,
    times  integer not null default 0
);

-- How things are today: how long each refund takes.
create table shop.weather (refund_takes interval not null);
insert into shop.weather values ('0');

-- The ledger of effects. It has no unique key, so that an effect that happens twice stands here twice, and it
-- is written in the transaction of the effect, by triggers that know nothing of dueline.
create table shop.effect (
    effect  bigint generated always as identity primary key,
    kind    text not null,
    key     text not null,
    at      timestamptz not null default clock_timestamp(),
    xid     xid8 not null default pg_current_xact_id()
);

create function shop.write_effect() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
    insert into shop.effect (kind, key) values (tg_argv[0], new.id::text);
    return null;
end $$;

create trigger closed after update of status on shop.orders
    for each row when (new.status = 'closed') execute function shop.write_effect('close_order');
create trigger refunded after update of times on shop.refunds
    for each row execute function shop.write_effect('refund');
create trigger shipped after update of times on shop.parcels
    for each row execute function shop.write_effect('ship');

-- What a gateway does: it is slow, it is down for a while (transient), or it cannot read what it is given
-- (permanent).
create function shop.wire_money(amount text, down_until timestamptz) returns text
language plpgsql volatile as $$
declare
    takes interval := (select refund_takes from shop.weather);
begin
    if takes > interval '0' then
        perform pg_sleep_for(takes);
    end if;
    if clock_timestamp() < down_until then
        raise exception 'the payment gateway did not answer';
    end if;
    return 'wired ' || amount::numeric(12, 2);
end $$;

grant usage on schema shop to dueline_handler;
grant select, update on shop.orders, shop.refunds, shop.parcels to dueline_handler;
grant select on shop.weather to dueline_handler;
