select state, count(*) from dueline.task group by state
