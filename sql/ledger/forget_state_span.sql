-- name: forget_state_span(from_at, to_at)!
-- Remove the window's spans before they are written anew.
-- Grain: one row per span.
-- Reads: state_span
-- Writes: state_span
-- Units: none
-- Ignores: hours outside the window.
delete from state_span where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz;
