-- One patrol at a time among all relays of this database; ends with the transaction.
select pg_try_advisory_xact_lock(hashtext('dueline.patrol'), 0) as mine
