-- A failover (or a restored copy) that lost commits would hand out ids again, and an epoch is an id too.
-- setval is not undone by a rollback: then the sequences have moved further, which harms nobody.
select setval(s.name::regclass, nextval(s.name::regclass) + 1000000)
from (values (pg_get_serial_sequence('dueline.task', 'id')),
             (pg_get_serial_sequence('dueline.relay', 'epoch'))) as s (name)
