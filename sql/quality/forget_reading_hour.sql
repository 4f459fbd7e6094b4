-- name: forget_reading_hour(from_at, to_at)!
-- Remove the window's hours before they are written anew.
-- Grain: one row of the hourly counts.
-- Reads: reading_hour
-- Writes: reading_hour
-- Units: none
-- Ignores: hours outside the window.
delete from reading_hour where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz;
