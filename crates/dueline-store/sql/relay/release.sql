-- Certainly not written: the alarm waits again. A row that somebody else holds just now is being answered or
-- changed; its lease decides then.
with locked as (
    select d.id
      from unnest($1::bigint[], $2::integer[]) as s (id, fence)
      join dueline.due d on d.id = s.id and d.fence = s.fence
     where d.lease_until is not null
     order by d.id
       for update of d skip locked
)
update dueline.due d
   set lease_until = null, claimed_at = null, claim_epoch = null, extensions = 0, fence = d.fence + 1
 where d.id = any (array(select l.id from locked l))
returning d.id
