-- name: stalled_allocation(from_at, to_at)
-- What jobs (or replicas of services) held while they read busy and made no progress.
-- Grain: one row per ledger span.
-- Columns: subject_kind varchar, subject_id varchar, workload_id varchar, hour_at timestamptz, from_at timestamptz, until_at timestamptz, tenant varchar, user varchar, queue varchar, kind varchar, gpu_uuid varchar, slice_id varchar, allocation_id varchar, node varchar, model varchar, state varchar, cause varchar, basis varchar, is_shared boolean, gpu_hours double, held_gpu_hours double, observed_minutes double, coverage_ratio double, gpu_util_ratio double, sm_active_ratio double, core_active_ratio double, tensor_active_ratio double, dram_active_ratio double, fb_used_ratio double, power_watts double
-- Reads: state_span, activity_hour
-- Units: GPU-hours, ratios, watts
-- Ignores: standstills under 10 min, and jobs of which one rank goes on: the ledger calls neither stalled. Tensor and DRAM activity are the hour's means.
-- Order: none
select
    case when held.kind = 'inference' then 'pod' else 'job' end as subject_kind,
    case when held.kind = 'inference' then held.pod else held.workload_id end as subject_id,
    held.workload_id,
    held.hour_at,
    held.from_at,
    held.until_at,
    held.tenant,
    held."user",
    held.queue,
    held.kind,
    held.gpu_uuid,
    held.slice_id,
    held.allocation_id,
    held.node,
    held.model,
    held.state,
    '' as cause,
    held.basis,
    contains(held.basis, 'shared_card') as is_shared,
    held.share * held.observed_minutes / 60 as gpu_hours,
    held.gpu_hours as held_gpu_hours,
    held.observed_minutes,
    held.coverage_ratio,
    held.gpu_util_ratio,
    held.sm_active_ratio,
    activity.core_active_ratio,
    activity.tensor_active_ratio,
    activity.dram_active_ratio,
    held.fb_used_ratio,
    held.power_watts
from state_span as held
left join activity_hour as activity
    on
        held.hour_at = activity.hour_at
        and held.gpu_uuid = activity.gpu_uuid
        and held.slice_id = activity.slice_id
        and held.allocation_id = activity.allocation_id
where
    held.hour_at >= :from_at::timestamptz
    and held.hour_at < :to_at::timestamptz
    and held.state = 'alloc_stalled';
