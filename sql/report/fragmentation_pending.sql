-- name: fragmentation_pending(at)
-- The work with GPUs that waits at an instant, its shape, its queue's limit, and what its scheduler says it waits for.
-- Grain: one row per workload.
-- Columns: workload_id varchar, queue varchar, cpu_milli bigint, memory_mib bigint, gpu_milli bigint, num_gpu bigint,
--   model_set varchar, pod_count bigint, is_gang boolean, wait_cause varchar, limit_gpus double, used_gpus double
-- Reads: workload, wait, quota, state_span
-- Units: GPUs; `limit_gpus` is quota and what may be borrowed, over all flavors: NULL where one is unlimited or not told
-- Ignores: limits of queues above the queue; what others of the cohort have left to lend.
-- Order: workload_id
with limits_of_flavors as (
    select
        queue,
        least(limit_gpus, nominal_gpus + borrowing_limit_gpus) as limit_gpus
    from quota
    where from_at <= :at::timestamptz and (until_at is null or until_at > :at::timestamptz)
    qualify row_number() over (partition by queue, flavor order by from_at desc) = 1
),

limits as (
    select queue, case when count(*) = count(limit_gpus) then sum(limit_gpus) end as limit_gpus
    from limits_of_flavors
    group by queue
),

used as (
    select queue, sum(share) as used_gpus
    from ledger_at(:at::timestamptz)
    where allocation_id <> ''
    group by queue
),

waits as (
    select workload_id, arg_max(cause, from_at) as cause
    from wait
    where from_at <= :at::timestamptz and (until_at is null or until_at > :at::timestamptz)
    group by workload_id
)

select
    workload.workload_id,
    workload.queue,
    workload.cpu_milli,
    workload.memory_mib,
    workload.gpu_milli,
    workload.num_gpu,
    workload.model_set,
    workload.pod_count,
    workload.is_gang,
    waits.cause as wait_cause,
    limits.limit_gpus,
    coalesce(used.used_gpus, 0) as used_gpus
from workload
left join waits on workload.workload_id = waits.workload_id
left join limits on workload.queue = limits.queue and workload.queue <> ''
left join used on workload.queue = used.queue
where
    workload.num_gpu > 0
    and workload.gpu_milli > 0
    and workload.submitted_at <= :at::timestamptz
    and coalesce(least(workload.started_at, workload.ended_at) > :at::timestamptz, true)
order by workload.workload_id;
