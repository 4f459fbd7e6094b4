-- name: consolidate_shapes(at, history_days)
-- Shapes that wait for whole GPUs at one instant, and those that are usually asked for, with how long their like ran.
-- Grain: one row per waiting workload, and one per usual shape
-- Columns: basis varchar, workload_id varchar, tenant varchar, priority bigint, submitted_at timestamptz, pod_count bigint,
--   num_gpu bigint, cpu_milli bigint, memory_mib bigint, model_set varchar, is_gang boolean, cause varchar, run_count bigint,
--   runtime_hours double, asked_pods bigint
-- Reads: workload, wait
-- Units: hours; `runtime_hours` is the median of the shape's runs in the history, cut at `at`; `asked_pods` are those asked for in it
-- Ignores: shares of cards and CPU-only work; usual are shapes with 1 % or more of the whole GPUs asked for in the `history_days` before `at`
-- Order: by basis, priority descending, submitted_at, workload_id, num_gpu, cpu_milli, memory_mib, model_set
with asked as (
    select
        *,
        :at::timestamptz - to_microseconds((:history_days::double * 86400000000)::bigint) as since_at
    from workload
    where num_gpu > 0 and gpu_milli = 1000 and submitted_at <= :at::timestamptz
),

runs as (
    select
        num_gpu,
        cpu_milli,
        memory_mib,
        model_set,
        pod_count,
        submitted_at >= since_at as is_recent,
        epoch(least(coalesce(ended_at, :at::timestamptz), :at::timestamptz) - started_at) / 3600 as run_hours
    from asked
    where coalesce(ended_at > since_at, true)
),

shapes as (
    select
        num_gpu,
        cpu_milli,
        memory_mib,
        model_set,
        coalesce(sum(pod_count * num_gpu) filter (where is_recent), 0) as asked_gpus,
        count(*) filter (where run_hours > 0) as run_count,
        median(run_hours) filter (where run_hours > 0) as runtime_hours,
        coalesce(sum(pod_count) filter (where is_recent), 0)::bigint as asked_pods
    from runs
    group by num_gpu, cpu_milli, memory_mib, model_set
),

shapes_by_weight as (
    select
        *,
        asked_gpus > 0 and asked_gpus >= 0.01 * sum(asked_gpus) over () as is_usual
    from shapes
),

causes as (
    select
        workload_id,
        cause
    from wait
    where from_at <= :at::timestamptz and coalesce(until_at > :at::timestamptz, true)
    qualify row_number() over (partition by workload_id order by from_at desc) = 1
),

waiting as (
    select
        asked.*,
        coalesce(causes.cause, asked.pending_cause, '') as cause
    from asked
    left join causes on asked.workload_id = causes.workload_id
    where
        coalesce(asked.started_at > :at::timestamptz, true)
        and coalesce(asked.ended_at > :at::timestamptz, true)
        and asked.status not in ('held', 'suspended', 'finished', 'failed', 'cancelled')
),

wanted as (
    select
        'pending' as basis,
        workload_id,
        tenant,
        priority,
        submitted_at,
        pod_count,
        num_gpu,
        cpu_milli,
        memory_mib,
        model_set,
        is_gang,
        cause
    from waiting
    union all
    select
        'usual' as basis,
        '' as workload_id,
        '' as tenant,
        0 as priority,
        :at::timestamptz as submitted_at,
        1 as pod_count,
        num_gpu,
        cpu_milli,
        memory_mib,
        model_set,
        false as is_gang,
        '' as cause
    from shapes_by_weight
    where is_usual
)

select
    wanted.basis,
    wanted.workload_id,
    wanted.tenant,
    wanted.priority,
    wanted.submitted_at,
    wanted.pod_count,
    wanted.num_gpu,
    wanted.cpu_milli,
    wanted.memory_mib,
    wanted.model_set,
    wanted.is_gang,
    wanted.cause,
    coalesce(shapes.run_count, 0) as run_count,
    shapes.runtime_hours,
    coalesce(shapes.asked_pods, 0) as asked_pods
from wanted
left join shapes
    on
        wanted.num_gpu = shapes.num_gpu
        and wanted.cpu_milli = shapes.cpu_milli
        and wanted.memory_mib = shapes.memory_mib
        and wanted.model_set is not distinct from shapes.model_set
order by
    wanted.basis,
    wanted.priority desc,
    wanted.submitted_at,
    wanted.workload_id,
    wanted.num_gpu,
    wanted.cpu_milli,
    wanted.memory_mib,
    wanted.model_set
