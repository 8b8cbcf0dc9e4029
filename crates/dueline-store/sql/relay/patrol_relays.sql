-- Deletes relays that ended a while ago; not before the last alarm that they claimed is gone, for until then their
-- row says what was confirmed.
delete from dueline.relay r
 where r.ended_at < statement_timestamp() - interval '1 hour'
   and not exists (select from dueline.lane l where l.epoch = r.epoch)
   and r.epoch not in (select d.claim_epoch from dueline.due d where d.claim_epoch is not null)
