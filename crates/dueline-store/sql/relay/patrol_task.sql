-- Deletes tasks finished long ago, in the blocks $1 to $2 (excluded); never a stranded one, and never before its
-- key is forgotten.
delete from dueline.task g
 where g.ctid = any (array(
        select t.ctid
          from dueline.task t
         where t.ctid >= format('(%s,0)', $1::bigint)::tid
           and t.ctid < format('(%s,0)', $2::bigint)::tid
           and t.state in ('done', 'skipped', 'cancelled')
           and t.finished_at < statement_timestamp() - $3::interval
           and not exists (select from dueline.dedupe d where d.key_hash = t.key_hash)
           and not exists (select from dueline.stranded s where s.id = t.id)
         limit $4::integer))
   and g.state in ('done', 'skipped', 'cancelled')
   and g.finished_at < statement_timestamp() - $3::interval
