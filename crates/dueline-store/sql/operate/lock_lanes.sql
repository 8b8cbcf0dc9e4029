-- Whoever schedules has read this table and keeps its lock until commit: with this lock, every alarm that was made
-- for one of the lanes is visible, and no new one can be made.
lock table dueline.lane in access exclusive mode
