-- name: fragmentation_claims(from_at, to_at)
-- The free shares of cards that no wanted shape can use, as the ledger says: what rule fragmentation claims.
-- Grain: one row per ledger span.
-- Columns: subject_kind varchar, subject_id varchar, workload_id varchar, hour_at timestamptz, from_at timestamptz, until_at timestamptz, tenant varchar, user varchar, queue varchar, kind varchar, gpu_uuid varchar, slice_id varchar, allocation_id varchar, node varchar, model varchar, state varchar, cause varchar, basis varchar, is_shared boolean, gpu_hours double, held_gpu_hours double, observed_minutes double, coverage_ratio double, gpu_util_ratio double, sm_active_ratio double, core_active_ratio double, tensor_active_ratio double, dram_active_ratio double, fb_used_ratio double, power_watts double
-- Reads: state_span
-- Units: GPU-hours; `held_gpu_hours` are the same as `gpu_hours`, since nobody holds a free share; no telemetry is needed
-- Ignores: free shares that a wanted shape can use.
-- Order: none
select
    'node' as subject_kind,
    -- One node may be stranded for two causes from the same instant, and a finding's identity does not hold the cause.
    concat(node, '/', cause) as subject_id,
    '' as workload_id,
    hour_at,
    from_at,
    until_at,
    '' as tenant,
    '' as "user",
    '' as queue,
    '' as kind,
    gpu_uuid,
    slice_id,
    allocation_id,
    node,
    model,
    state,
    cause,
    basis,
    false as is_shared,
    gpu_hours,
    gpu_hours as held_gpu_hours,
    epoch_us(until_at - from_at) / 6e7 as observed_minutes,
    null::double as coverage_ratio,
    null::double as gpu_util_ratio,
    null::double as sm_active_ratio,
    null::double as core_active_ratio,
    null::double as tensor_active_ratio,
    null::double as dram_active_ratio,
    null::double as fb_used_ratio,
    null::double as power_watts
from state_span
where
    state = 'free_stranded'
    and hour_at >= :from_at::timestamptz
    and hour_at < :to_at::timestamptz;
