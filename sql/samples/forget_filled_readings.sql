-- name: forget_filled_readings(low_at, high_at)!
-- Remove the readings that are about to be written anew.
-- Grain: one row per gpu_uuid, slice_id, ts and source.
-- Reads: staged
-- Writes: reading
-- Units: none
-- Ignores: readings outside [low_at, high_at].
delete from reading
using staged
where
    reading.gpu_uuid = staged.gpu_uuid
    and reading.slice_id = staged.slice_id
    and reading.ts = staged.ts
    and reading.source = staged.source
    and reading.ts between :low_at::timestamptz and :high_at::timestamptz;
