-- Rules of the hot tables that only the product's own statements could break. A CHECK is parsed again by every
-- statement that writes its table; so they stand here, where every test runs under them.
alter table dueline.task
    add check (generation >= 0),
    add check (attempt >= 0),
    add check (char_length(last_error) <= 2000),
    add check ((state = 'live') = (finished_at is null)),
    -- A live task's fence stands in `due`. A done one never has an alarm again; every other state can get one, and
    -- a fence that started anew would let a relay's old write pass.
    add check (case state when 'live' then fence is null when 'done' then true else fence is not null end);
alter table dueline.due
    add check (isfinite(next_at)),
    add check ((lease_until is null) = (claimed_at is null) and (lease_until is null) = (claim_epoch is null)),
    add check (lease_until is not null or extensions = 0);
alter table dueline.dedupe
    add check ((outcome = 'in_progress') = (token is not null and until is not null)),
    add check ((outcome = 'done') = (finished_at is not null));
