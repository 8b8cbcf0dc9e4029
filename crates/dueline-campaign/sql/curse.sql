-- Poison: it fails for good, whatever it is given.
select (batch.ord / (batch.ord - batch.ord)) as ord from batch
