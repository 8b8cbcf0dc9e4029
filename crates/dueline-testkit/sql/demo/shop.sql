-- The demo's business: orders that are closed when nobody pays, refunds that go through a payment
-- gateway.
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
    status              text not null default 'pending' check (status in ('pending', 'refunded')),
    receipt             text
);

-- The business's own ledger: written by the handlers' statements, read by the checker.
create table shop.effect (
    effect  bigint generated always as identity primary key,
    kind    text not null,
    key     text not null,
    at      timestamptz not null default clock_timestamp()
);

-- What a gateway does: it is down for a while (transient), or cannot read what it is given
-- (permanent).
create function shop.wire_money(amount text, down_until timestamptz) returns text
language plpgsql volatile as $$
begin
    if clock_timestamp() < down_until then
        raise exception 'the payment gateway did not answer';
    end if;
    return 'wired ' || amount::numeric(12, 2);
end $$;

grant usage on schema shop to dueline_handler;
grant select, update on shop.orders, shop.refunds to dueline_handler;
grant insert on shop.effect to dueline_handler;
