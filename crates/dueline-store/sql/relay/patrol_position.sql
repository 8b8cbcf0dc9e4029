-- Where the patrol stands in a table, and how many blocks the table has now.
select coalesce((select p.next_block from dueline.patrol p where p.table_name = $1::text), 0) as next_block,
       pg_relation_size(('dueline.' || $1::text)::regclass) / current_setting('block_size')::bigint as blocks
