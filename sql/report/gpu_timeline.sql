-- name: gpu_timeline(gpu_uuid, from_at, to_at)
-- What one card did, state by state.
-- Grain: one row per slice, allocation and run of one state within an hour.
-- Columns: from_at timestamptz, until_at timestamptz, slice_id varchar, state varchar, cause varchar, basis varchar, share double, workload_id varchar, tenant varchar, gpu_util_ratio double, sm_active_ratio double, power_watts double
-- Reads: state_span
-- Units: share of the card, ratios, watts
-- Ignores: nothing.
-- Order: from_at, slice_id
select
    from_at,
    until_at,
    slice_id,
    state,
    cause,
    basis,
    share,
    workload_id,
    tenant,
    gpu_util_ratio,
    sm_active_ratio,
    power_watts
from state_span
where
    gpu_uuid = :gpu_uuid
    and hour_at < :to_at::timestamptz
    and until_at > :from_at::timestamptz
order by from_at, slice_id, allocation_id;
