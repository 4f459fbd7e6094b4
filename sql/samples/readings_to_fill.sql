-- name: readings_to_fill(low_at, high_at)
-- What is already written of the staged rows.
-- Grain: one row per gpu_uuid, slice_id, ts and source.
-- Reads: reading, staged
-- Writes: nothing; it is asked by the service itself, on the rows that it staged
-- Units: those of reading
-- Ignores: readings outside [low_at, high_at], the span of the staged ones.
select *
from reading
semi join staged using (gpu_uuid, ts, source)
where ts between :low_at::timestamptz and :high_at::timestamptz;
