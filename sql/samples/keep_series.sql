-- name: keep_series(seen_at)!
-- Write down the staged series that are not known yet.
-- Grain: one row per series_id.
-- Reads: staged, series
-- Writes: series
-- Units: none
-- Ignores: what of a known series differs: its identity is its labels.
insert into series by name
select
    series_id, name, labels, target, source, gpu_uuid, node, :seen_at::timestamptz as first_seen_at, :seen_at::timestamptz as last_seen_at
from staged
anti join series using (series_id);
