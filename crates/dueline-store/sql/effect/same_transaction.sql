-- Is this still the transaction that step 1 began?
select coalesce(current_setting('dueline.effect', true) = $1, false)
