-- name: forget_quality(from_at, to_at)!
-- Remove the window's hours before they are written anew.
-- Grain: one row of the quality table.
-- Reads: quality
-- Writes: quality
-- Units: none
-- Ignores: hours outside the window.
delete from quality where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz;
