-- name: workload_waits(from_at, to_at, limit_count)
-- How long each workload waited: first for itself (holds, dependencies, a begin time), then for resources.
-- Grain: one row per workload that waited in the window.
-- Columns: workload_id varchar, scheduler varchar, queue varchar, tenant varchar, status varchar, gpus double,
--   submitted_at timestamptz, eligible_at timestamptz, started_at timestamptz, own_wait_hours double,
--   resource_wait_hours double, total_wait_hours double, pending_cause varchar, pending_reason varchar
-- Reads: workload
-- Units: hours up to the start, or up to the window's end where it has not started; GPUs of all of its pods;
--   `own_wait_hours` and `resource_wait_hours` are NULL where the scheduler does not say when it could have started
-- Ignores: workloads beyond `limit_count`, and those without GPUs. `resource_wait_hours` is the wait that more GPUs could shorten.
-- Order: the longest wait for resources first, then workload_id
with spans as (
    select
        *,
        least(coalesce(started_at, ended_at, :to_at::timestamptz), :to_at::timestamptz) as waited_until_at
    from workload
    where num_gpu > 0 and submitted_at < :to_at::timestamptz and coalesce(least(started_at, ended_at) > :from_at::timestamptz, true)
),

ready as (
    select
        *,
        case
            when eligible_at is not null then greatest(submitted_at, least(eligible_at, waited_until_at))
            when status = 'held' then waited_until_at
        end as ready_at
    from spans
)

select
    workload_id,
    scheduler,
    queue,
    tenant,
    status,
    pod_count * num_gpu * gpu_milli / 1000 as gpus,
    submitted_at,
    eligible_at,
    started_at,
    date_diff('microsecond', submitted_at, ready_at) / 3600000000 as own_wait_hours,
    date_diff('microsecond', ready_at, waited_until_at) / 3600000000 as resource_wait_hours,
    date_diff('microsecond', submitted_at, waited_until_at) / 3600000000 as total_wait_hours,
    pending_cause,
    pending_reason
from ready
order by resource_wait_hours desc nulls last, workload_id
limit :limit_count;
