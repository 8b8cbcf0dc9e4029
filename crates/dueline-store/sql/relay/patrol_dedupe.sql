-- Forgets keys handled long ago, in the blocks $1 to $2 (excluded); never one whose task may still act. A key that was
-- begun or has failed, and was never done, goes when its task has ended as long ago, or is no more.
delete from dueline.dedupe g
 where g.ctid = any (array(
        select d.ctid
          from dueline.dedupe d
         where d.ctid >= format('(%s,0)', $1::bigint)::tid
           and d.ctid < format('(%s,0)', $2::bigint)::tid
           and case d.outcome
                   when 'done' then d.finished_at < statement_timestamp() - $3::interval
                   else coalesce(d.until, '-infinity') < statement_timestamp() - $3::interval
                        and not exists (select from dueline.task t
                                         where t.key_hash = d.key_hash
                                           and t.finished_at >= statement_timestamp() - $3::interval) end
           and not exists (select from dueline.task t
                            where t.key_hash = d.key_hash and t.state in ('live', 'dead'))
         limit $4::integer))
   and coalesce(g.finished_at, g.until, '-infinity') < statement_timestamp() - $3::interval
