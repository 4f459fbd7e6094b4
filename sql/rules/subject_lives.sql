-- name: subject_lives(from_at, to_at)
-- When each job, and each replica of a service, first worked (or served requests) and until when it was held.
-- Grain: one row per subject (a workload; of services a pod).
-- Columns: subject_kind varchar, subject_id varchar, workload_id varchar, last_at timestamptz, first_active_at timestamptz
-- Reads: state_span
-- Units: none
-- Ignores: what lies outside the window. `first_active_at` is NULL for what never worked in it.
-- Order: none
select
    case when kind = 'inference' then 'pod' else 'job' end as subject_kind,
    case when kind = 'inference' then pod else workload_id end as subject_id,
    workload_id,
    max(until_at) as last_at,
    min(from_at) filter (where activity in ('active', 'serving')) as first_active_at
from state_span
where
    hour_at >= :from_at::timestamptz
    and hour_at < :to_at::timestamptz
    and allocation_id <> ''
group by all;
