-- name: forget_quality_energy(from_at, to_at)!
-- Remove what the window's hours say of energy counters before it is written anew.
-- Grain: one row of the quality table.
-- Reads: quality
-- Writes: quality
-- Units: none
-- Ignores: hours outside the window, and other kinds.
delete from quality
where
    hour_at >= :from_at::timestamptz
    and hour_at < :to_at::timestamptz
    and kind in ('counter_reset', 'impossible_increase');
