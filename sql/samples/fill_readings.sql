-- name: fill_readings()!
-- Write the staged readings.
-- Grain: one row per gpu_uuid, slice_id, ts and source.
-- Reads: staged
-- Writes: reading
-- Units: those of reading
-- Ignores: nothing.
insert into reading by name
select *
from staged;
