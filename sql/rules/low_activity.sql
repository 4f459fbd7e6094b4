-- name: low_activity(from_at, to_at, max_serving_util_ratio, min_input_bytes_per_second)
-- Shares that worked and reached little: the hours that the ledger grades low, training that never used its tensor cores, servers that answered on a quiet card, and services whose utilization is so low that no grade is needed.
-- Grain: one row per ledger span.
-- Columns: subject_kind varchar, subject_id varchar, workload_id varchar, hour_at timestamptz, from_at timestamptz, until_at timestamptz, tenant varchar, user varchar, queue varchar, kind varchar, gpu_uuid varchar, slice_id varchar, allocation_id varchar, node varchar, model varchar, state varchar, cause varchar, basis varchar, is_shared boolean, gpu_hours double, held_gpu_hours double, observed_minutes double, coverage_ratio double, gpu_util_ratio double, sm_active_ratio double, core_active_ratio double, tensor_active_ratio double, dram_active_ratio double, fb_used_ratio double, power_watts double
-- Reads: state_span, activity_hour
-- Units: GPU-hours, ratios, watts
-- Ignores: idle minutes, declared quiet phases, cards that several pods share, and work without a grade but such services. Utilization is an upper bound of SM activity: no kernel, no SM. `cause` is that of the share's hour; pauses are minutes below 5 % and idle runs under 30 min.
-- Order: none
with held as (
    select *
    from state_span
    where
        hour_at >= :from_at::timestamptz
        and hour_at < :to_at::timestamptz
        and state in ('alloc_low', 'alloc_productive', 'alloc_ungraded')
        and cause in ('', 'serving')
),

pauses as (
    select hour_at, gpu_uuid, slice_id, allocation_id, sum(observed_minutes) as pause_minutes
    from held
    where state = 'alloc_low' and activity = 'idle'
    group by all
),

judged as (
    select
        held.*,
        activity.core_active_ratio,
        activity.tensor_active_ratio,
        activity.dram_active_ratio,
        case
            when held.activity = 'serving' then 'low_serving'
            when held.state = 'alloc_ungraded'
                then
                    case
                        when
                            held.kind = 'inference'
                            and coalesce(activity.sm_active_ratio, activity.core_active_ratio) is null
                            and activity.gpu_util_ratio < :max_serving_util_ratio::double
                            then 'low_serving'
                    end
            when held.state = 'alloc_productive'
                then
                    case
                        when
                            held.kind = 'training'
                            and activity.sm_active_ratio >= 0.6
                            and activity.tensor_active_ratio < 0.02
                            then 'non_tensor'
                    end
            when activity.dram_active_ratio >= 0.6 and activity.tensor_active_ratio < 0.1 then 'memory_bound'
            when held.kind = 'inference' then 'low_serving'
            when
                activity.zero_minutes + coalesce(pauses.pause_minutes, 0)
                >= 0.2 * (activity.active_minutes + coalesce(pauses.pause_minutes, 0))
                and activity.pcie_bytes_per_second >= :min_input_bytes_per_second::double
                then 'input_bound'
            when activity.gpu_util_ratio >= 0.9 then 'util_lies'
            else 'low_sm'
        end as low_cause
    from held
    inner join activity_hour as activity
        on
            held.hour_at = activity.hour_at
            and held.gpu_uuid = activity.gpu_uuid
            and held.slice_id = activity.slice_id
            and held.allocation_id = activity.allocation_id
    left join pauses
        on
            held.hour_at = pauses.hour_at
            and held.gpu_uuid = pauses.gpu_uuid
            and held.slice_id = pauses.slice_id
            and held.allocation_id = pauses.allocation_id
    where held.activity in ('active', 'serving') and not activity.is_shared
)

select
    case when kind = 'inference' then 'pod' else 'job' end as subject_kind,
    case when kind = 'inference' then pod else workload_id end as subject_id,
    workload_id,
    hour_at,
    from_at,
    until_at,
    tenant,
    "user",
    queue,
    kind,
    gpu_uuid,
    slice_id,
    allocation_id,
    node,
    model,
    state,
    low_cause as cause,
    basis,
    false as is_shared,
    share * observed_minutes / 60 as gpu_hours,
    gpu_hours as held_gpu_hours,
    observed_minutes,
    coverage_ratio,
    gpu_util_ratio,
    sm_active_ratio,
    core_active_ratio,
    tensor_active_ratio,
    dram_active_ratio,
    fb_used_ratio,
    power_watts
from judged
where low_cause is not null;
