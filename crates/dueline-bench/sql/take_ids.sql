-- The first of $1 ids that nobody else gets.
select setval(seq, first + $1::bigint, false) - $1::bigint
  from (select seq, nextval(seq) as first
          from (select pg_get_serial_sequence('dueline.task', 'id') as seq offset 0) s offset 0) s
