-- name: forget_inventory_difference()!
-- Remove the last comparison's differences before the next one is written.
-- Grain: one row per difference.
-- Reads: inventory_difference
-- Writes: inventory_difference
-- Units: none
-- Ignores: nothing.
delete from inventory_difference;
