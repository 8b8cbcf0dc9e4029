-- Be $1 (`none` is the session's own user), and plan as statements of ours (`off`) or of somebody else (`on`) are to
-- be planned, until the transaction ends.
select set_config('role', $1, true) as now,
       set_config('enable_seqscan', $2, true) as seqscan, set_config('enable_bitmapscan', $2, true) as bitmapscan,
       set_config('enable_hashjoin', $2, true) as hashjoin, set_config('enable_mergejoin', $2, true) as mergejoin,
       set_config('plan_cache_mode', case $2 when 'on' then 'force_custom_plan' else 'force_generic_plan' end, true)
           as plans
