-- name: evidence_extent()
-- The span of time that any record speaks of, ends of intervals included.
-- Grain: one row.
-- Columns: from_at timestamptz, to_at timestamptz
-- Reads: reading, source_read, holding, allocation, queue_state
-- Units: none
-- Ignores: dated facts (nodes, assets, quotas): they say what holds, not that somebody looked.
-- Order: none
with spans as (
    select min(ts) as from_at, max(ts + to_seconds(coalesce(interval_seconds, 60))) as to_at from reading
    union all
    select min(ts), max(ts + to_seconds(coalesce(interval_seconds, 60))) from source_read
    union all
    select min(ts), max(ts + to_seconds(coalesce(interval_seconds, 60))) from holding
    union all
    select min(started_at), max(greatest(started_at, ready_at, ended_at)) from allocation
    union all
    select min(ts), max(ts + to_seconds(duration_seconds)) from queue_state
)

select min(from_at) as from_at, max(to_at) as to_at
from spans;
