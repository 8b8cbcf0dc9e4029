-- Forgets keys handled long ago, in the blocks $1 to $2 (excluded); never one whose task may still act.
delete from dueline.dedupe g
 where g.ctid = any (array(
        select d.ctid
          from dueline.dedupe d
         where d.ctid >= format('(%s,0)', $1::bigint)::tid
           and d.ctid < format('(%s,0)', $2::bigint)::tid
           and d.finished_at < statement_timestamp() - $3::interval
           and not exists (select from dueline.task t
                            where t.key_hash = d.key_hash and t.state in ('live', 'dead'))
         limit $4::integer))
   and g.finished_at < statement_timestamp() - $3::interval
