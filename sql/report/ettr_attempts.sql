-- name: ettr_attempts(from_at, to_at)
-- Attempts of training that held GPUs in the window, from their job's first submission on: when each waited, started, was ready, saved and ended.
-- Grain: one row per workload and attempt (a time without a gap in which it held GPUs).
-- Columns: workload_id varchar, tenant varchar, attempt bigint, gpus double, submitted_at timestamptz, started_at timestamptz,
--   ready_at timestamptz, ended_at timestamptz, checkpoint_at timestamptz, has_checkpoints boolean, is_last boolean,
--   is_kept_at_end boolean
-- Reads: allocation, workload, workload_event, checkpoint
-- Units: GPUs; `ended_at` is NULL while it runs; `ready_at` NULL where no pod became ready. `checkpoint_at`: the attempt's last one.
--   `is_kept_at_end`: it ended as its job's last, and nothing says that it failed, was cancelled or preempted
-- Ignores: work that is neither training nor ever saved a checkpoint; what happened after the window.
-- Order: workload_id, attempt
with wanted as (
    select workload.workload_id, workload.tenant, workload.submitted_at, workload.status
    from workload
    where
        (workload.kind = 'training' or workload.workload_id in (select checkpoint.workload_id from checkpoint))
        and workload.workload_id in (
            select allocation.workload_id
            from allocation
            where
                allocation.gpu_uuid is not null
                and allocation.started_at < :to_at::timestamptz
                and coalesce(allocation.ended_at > :from_at::timestamptz, true)
        )
),

held as (
    select
        allocation.workload_id,
        allocation.share,
        allocation.started_at,
        case when allocation.ready_at < :to_at::timestamptz then allocation.ready_at end as ready_at,
        case when allocation.ended_at <= :to_at::timestamptz then allocation.ended_at end as ended_at
    from allocation
    inner join wanted using (workload_id)
    where allocation.gpu_uuid is not null and allocation.started_at < :to_at::timestamptz
),

reached as (
    select
        *,
        max(coalesce(ended_at, 'infinity'::timestamptz)) over (
            partition by workload_id
            order by started_at, coalesce(ended_at, 'infinity'::timestamptz)
            rows between unbounded preceding and 1 preceding
        ) as reached_at
    from held
),

numbered as (
    select
        *,
        count(*) filter (where reached_at is null or started_at >= reached_at) over (
            partition by workload_id
            order by started_at, coalesce(ended_at, 'infinity'::timestamptz)
            rows unbounded preceding
        ) as attempt
    from reached
),

attempts as (
    select
        workload_id,
        attempt,
        sum(share) as gpus,
        min(started_at) as started_at,
        max(ready_at) as ready_at,
        case when count(*) filter (where ended_at is null) = 0 then max(ended_at) end as ended_at,
        attempt = max(attempt) over (partition by workload_id) as is_last
    from numbered
    group by workload_id, attempt
),

saved as (
    select attempts.workload_id, attempts.attempt, max(checkpoint.ts) as checkpoint_at
    from attempts
    inner join checkpoint
        on
            attempts.workload_id = checkpoint.workload_id
            and checkpoint.ts >= attempts.started_at
            and checkpoint.ts <= coalesce(attempts.ended_at, :to_at::timestamptz)
            and checkpoint.ts < :to_at::timestamptz
    group by attempts.workload_id, attempts.attempt
),

broken as (
    select distinct attempts.workload_id, attempts.attempt
    from attempts
    inner join workload_event as event
        on
            attempts.workload_id = event.workload_id
            and event.kind in ('failed', 'evicted', 'requeued', 'cancelled', 'preempted', 'suspended')
            and event.ts >= attempts.ended_at - interval 5 minute
            and event.ts <= attempts.ended_at + interval 5 minute
)

select
    attempts.workload_id,
    wanted.tenant,
    attempts.attempt,
    attempts.gpus,
    wanted.submitted_at,
    attempts.started_at,
    attempts.ready_at,
    attempts.ended_at,
    saved.checkpoint_at,
    attempts.workload_id in (select checkpoint.workload_id from checkpoint) as has_checkpoints,
    attempts.is_last,
    attempts.is_last
    and attempts.ended_at is not null
    and broken.workload_id is null
    and wanted.status not in ('failed', 'cancelled', 'preempted') as is_kept_at_end
from attempts
inner join wanted using (workload_id)
left join saved using (workload_id, attempt)
left join broken using (workload_id, attempt)
order by attempts.workload_id, attempts.attempt;
