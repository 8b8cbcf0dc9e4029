-- Steps 1 and 2 of the effect, for a handler in Rust. In the same round trip, if there is anything to handle: become
-- the handlers' role, and let the planner choose as it likes for somebody else's statement.
-- $1 ids, $2 key hashes, $3 generations, $4 attempts, $5 the name of this transaction, checked by the settle,
-- $6 the handlers' role. One row: what `admit` answers, and who we were.
select a.known, a.early, a.stale,
       set_config('dueline.effect', $5, true) as name,
       current_setting('role') as before,
       case when cardinality($1) > coalesce(cardinality(a.known), 0) + coalesce(cardinality(a.early), 0)
                                 + coalesce(cardinality(a.stale), 0) then
           set_config('enable_seqscan', 'on', true) || set_config('enable_bitmapscan', 'on', true) ||
           set_config('enable_hashjoin', 'on', true) || set_config('enable_mergejoin', 'on', true) ||
           set_config('plan_cache_mode', 'force_custom_plan', true) || set_config('role', $6, true)
       end as now
from dueline.admit($1, $2, $3, $4) a
