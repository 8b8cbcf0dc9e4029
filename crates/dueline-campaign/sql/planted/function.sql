-- A function of the product, as a statement that makes it again.
select pg_get_functiondef(p.oid)
  from pg_proc p
 where p.pronamespace = 'dueline'::regnamespace
   and p.proname = $1
