-- name: basis_with(from_at, to_at)!
-- The window's spans as they were judged with all counters, set aside before they are judged without some.
-- Grain: one row per span.
-- Reads: state_span
-- Writes: basis_with
-- Units: share of a physical GPU
-- Ignores: nothing.
create or replace temp table basis_with as
select gpu_uuid, slice_id, allocation_id, hour_at, from_at, until_at, state, share
from state_span
where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz;
