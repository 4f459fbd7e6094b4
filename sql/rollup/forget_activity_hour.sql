-- name: forget_activity_hour(from_at, to_at)!
-- Remove what shares did in the window before it is written anew.
-- Grain: one row per held share and hour.
-- Reads: activity_hour
-- Writes: activity_hour
-- Units: none
-- Ignores: hours outside the window.
delete from activity_hour where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz;
