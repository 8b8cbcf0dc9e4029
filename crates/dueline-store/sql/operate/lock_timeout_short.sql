-- Whoever waits for a table lock makes everybody wait who comes after: for a moment only.
set local lock_timeout = '200ms'
