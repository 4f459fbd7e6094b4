-- name: forget_ledger_hour(from_at, to_at)!
-- Remove the window's hours before they are written anew.
-- Grain: one row of the hourly ledger.
-- Reads: ledger_hour
-- Writes: ledger_hour
-- Units: none
-- Ignores: hours outside the window.
delete from ledger_hour where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz;
