-- The literal 0: a parameter would keep a prepared statement from using the partial index.
update job
   set state = 1, lease_until = clock_timestamp() + interval '1 minute'
 where id = any (array(
           select id from job
            where state = 0 and due_at <= statement_timestamp()
            order by due_at
            limit $1::integer
              for update skip locked))
returning id, key
