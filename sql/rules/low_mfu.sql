-- name: low_mfu(from_at, to_at)
-- What jobs held while they told steps with tokens or model FLOPs and had declared their model.
-- Grain: one row per piece of a ledger span.
-- Columns: subject_kind varchar, subject_id varchar, workload_id varchar, hour_at timestamptz, from_at timestamptz, until_at timestamptz, tenant varchar, user varchar, queue varchar, kind varchar, gpu_uuid varchar, slice_id varchar, allocation_id varchar, node varchar, model varchar, state varchar, cause varchar, basis varchar, is_shared boolean, gpu_hours double, held_gpu_hours double, observed_minutes double, coverage_ratio double, gpu_util_ratio double, sm_active_ratio double, core_active_ratio double, tensor_active_ratio double, dram_active_ratio double, fb_used_ratio double, power_watts double
-- Reads: job_step, job_model, state_span
-- Units: GPU-hours
-- Ignores: jobs that declare no model or tell neither tokens nor model FLOPs, and the time before their first step and after their last. Tensor activity says nothing of MFU and is not read.
-- Order: none
with told as (
    select
        workload_id,
        time_bucket(interval 1 hour, ts - interval 1 microsecond) as told_at,
        min(ts - to_microseconds((coalesce(step_seconds, 0) * 1e6)::bigint)) as from_at,
        max(ts) as until_at
    from job_step
    semi join job_model using (workload_id)
    where ts > :from_at::timestamptz and ts <= :to_at::timestamptz + interval 1 hour and (tokens > 0 or model_flops_per_gpu_second * step_seconds > 0)
    group by all
)

select
    'job' as subject_kind,
    held.workload_id as subject_id,
    held.workload_id,
    held.hour_at,
    greatest(held.from_at, told.from_at) as from_at,
    least(held.until_at, told.until_at) as until_at,
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
    'low_mfu' as cause,
    'declared_flops+tokens' as basis,
    contains(held.basis, 'shared_card') as is_shared,
    held.share * piece.hours as gpu_hours,
    held.share * piece.hours as held_gpu_hours,
    piece.hours * 60 as observed_minutes,
    1::double as coverage_ratio,
    held.gpu_util_ratio,
    held.sm_active_ratio,
    null::double as core_active_ratio,
    null::double as tensor_active_ratio,
    null::double as dram_active_ratio,
    held.fb_used_ratio,
    held.power_watts
from told
inner join state_span as held
    on
        told.workload_id = held.workload_id
        and held.from_at < told.until_at
        and held.until_at > told.from_at
        and held.hour_at >= :from_at::timestamptz
        and held.hour_at < :to_at::timestamptz
        and held.allocation_id <> ''
cross join lateral (
    select epoch_us(least(held.until_at, told.until_at) - greatest(held.from_at, told.from_at)) / 3.6e9 as hours
) as piece;
