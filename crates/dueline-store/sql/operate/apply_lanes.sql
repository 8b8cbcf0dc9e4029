select lane, queue, tier, slot from dueline.lane order by queue, tier, slot
