-- Deletes the audit trail's oldest entries, in the blocks $1 to $2 (excluded).
delete from dueline.task_event g
 where g.ctid = any (array(
        select e.ctid
          from dueline.task_event e
         where e.ctid >= format('(%s,0)', $1::bigint)::tid
           and e.ctid < format('(%s,0)', $2::bigint)::tid
           and e.at < statement_timestamp() - $3::interval
         limit $4::integer))
