-- A relay starts: a new incarnation.
insert into dueline.relay (name, version)
values ($1::text, $2::text)
returning epoch
