-- name: request_extent()
-- The span of time in which work asked for GPUs, for a warehouse that knows requests but nothing that was observed.
-- Grain: one row.
-- Columns: from_at timestamptz, to_at timestamptz
-- Reads: workload
-- Units: none
-- Ignores: whether a request was met.
-- Order: none
select min(submitted_at) as from_at, max(greatest(submitted_at, started_at, ended_at)) + interval 1 second as to_at
from workload;
