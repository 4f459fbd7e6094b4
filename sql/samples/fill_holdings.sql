-- name: fill_holdings(low_at, high_at)!
-- Write the staged sightings that are not written yet.
-- Grain: one row per gpu_uuid, slice_id, namespace, pod and ts.
-- Reads: staged, holding
-- Writes: holding
-- Units: those of holding
-- Ignores: sightings that another source wrote down for the same instant.
insert into holding by name
select *
from staged
anti join (
    from holding
    where ts between :low_at::timestamptz and :high_at::timestamptz
) as existing using (gpu_uuid, slice_id, namespace, pod, ts);
