-- name: gang_cards(from_at, to_at)
-- What each card of a subject did in each hour: who of a gang was idle and who worked.
-- Grain: one row per subject (a workload; of services a pod), card and hour.
-- Columns: subject_kind varchar, subject_id varchar, workload_id varchar, hour_at timestamptz, gpu_uuid varchar, slice_id varchar, node varchar, idle_gpu_hours double, active_gpu_hours double, unknown_gpu_hours double
-- Reads: state_span
-- Units: GPU-hours
-- Ignores: subjects without an idle stretch in the window.
-- Order: none
with accused as (
    select distinct workload_id
    from state_span
    where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz and state = 'alloc_idle'
)

select
    case when kind = 'inference' then 'pod' else 'job' end as subject_kind,
    case when kind = 'inference' then pod else workload_id end as subject_id,
    workload_id,
    hour_at,
    gpu_uuid,
    slice_id,
    node,
    coalesce(sum(gpu_hours) filter (where state = 'alloc_idle'), 0) as idle_gpu_hours,
    coalesce(sum(gpu_hours) filter (where activity = 'active'), 0) as active_gpu_hours,
    coalesce(sum(gpu_hours) filter (where state = 'alloc_unknown'), 0) as unknown_gpu_hours
from state_span
semi join accused using (workload_id)
where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz and allocation_id <> ''
group by all;
