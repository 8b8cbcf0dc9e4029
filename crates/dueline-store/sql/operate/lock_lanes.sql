-- Whoever gives a task its alarm has read one of these tables and keeps its lock until commit: with these locks,
-- every alarm that was made for one of the lanes is visible, and no new one can be made.
lock table dueline.route, dueline.lane in access exclusive mode
