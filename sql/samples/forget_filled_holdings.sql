-- name: forget_filled_holdings(low_at, high_at)!
-- Remove the sightings on cards and instants of which all samples are still here: they are written anew.
-- Grain: one row per gpu_uuid, slice_id, namespace, pod and ts.
-- Reads: staged
-- Writes: holding
-- Units: none
-- Ignores: sightings of other sources.
delete from holding
using staged
where
    holding.gpu_uuid = staged.gpu_uuid
    and holding.ts = staged.ts
    and holding.source = staged.source
    and holding.ts between :low_at::timestamptz and :high_at::timestamptz;
