-- Who this database is: the three parts of the source of its messages.
select name, uuid, timeline from dueline.instance
