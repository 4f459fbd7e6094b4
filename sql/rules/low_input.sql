-- name: low_input(from_at, to_at)
-- How often work paused for its input, and what came over PCIe: what tells input-bound work from the rest.
-- Grain: one row per subject (a workload; of services a pod) and hour.
-- Columns: subject_kind varchar, subject_id varchar, workload_id varchar, hour_at timestamptz, pause_minutes double, judged_minutes double, pcie_bytes_per_second double
-- Reads: state_span, activity_hour
-- Units: minutes of cards; bytes per second, the mean over cards
-- Ignores: idle stretches of 30 min, which are not pauses, and cards that several pods share.
-- Order: none
with held as (
    select
        hour_at,
        gpu_uuid,
        slice_id,
        allocation_id,
        workload_id,
        any_value(kind) as kind,
        any_value(pod) as pod,
        coalesce(sum(observed_minutes) filter (where activity = 'idle' and cause = ''), 0) as pause_minutes
    from state_span
    where
        hour_at >= :from_at::timestamptz
        and hour_at < :to_at::timestamptz
        and state = 'alloc_low'
    group by all
)

select
    case when held.kind = 'inference' then 'pod' else 'job' end as subject_kind,
    case when held.kind = 'inference' then held.pod else held.workload_id end as subject_id,
    held.workload_id,
    held.hour_at,
    sum(activity.zero_minutes + held.pause_minutes) as pause_minutes,
    sum(activity.active_minutes + held.pause_minutes) as judged_minutes,
    avg(activity.pcie_bytes_per_second) as pcie_bytes_per_second
from held
inner join activity_hour as activity
    on
        held.hour_at = activity.hour_at
        and held.gpu_uuid = activity.gpu_uuid
        and held.slice_id = activity.slice_id
        and held.allocation_id = activity.allocation_id
where not activity.is_shared
group by all;
