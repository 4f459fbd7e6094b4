-- name: waits(from_at, to_at)
-- How long work waited for what, and who can end it: what waits for its own hold, dependency or mistake is no lack of GPUs.
-- Grain: one row per scheduler, queue, tenant and cause.
-- Columns: scheduler varchar, queue varchar, tenant varchar, cause varchar, blame varchar, is_bottleneck boolean,
--   workload_count bigint, open_count bigint, wait_hours double, mean_wait_hours double, gpu_hours double, reasons varchar[]
-- Reads: wait, workload, pending_cause
-- Units: hours that workloads waited, summed; `gpu_hours` are these hours times the GPUs that waited; `open_count` still
--   waited at the window's end; `mean_wait_hours` is by workload; `reasons` are the first five of the scheduler's words
-- Ignores: time outside the window. Of two reasons of one workload at once the later one counts. An open wait lasts to the
--   window's end: ask for no end that lies ahead.
-- Order: the most GPU-hours first, then scheduler, queue, tenant, cause
with told as (
    select
        *,
        least(coalesce(until_at, 'infinity'::timestamptz), coalesce(lead(from_at) over (partition by workload_id order by from_at), 'infinity'::timestamptz)) as ends_at
    from wait
    where from_at < :to_at::timestamptz
),

clipped as (
    select
        told.workload_id,
        told.cause,
        told.reason,
        told.gpus,
        told.ends_at > :to_at::timestamptz as is_open,
        date_diff('microsecond', greatest(told.from_at, :from_at::timestamptz), least(told.ends_at, :to_at::timestamptz)) / 3600000000 as hours
    from told
    where told.ends_at > :from_at::timestamptz and told.ends_at > told.from_at
)

select
    coalesce(workload.scheduler, '') as scheduler,
    coalesce(workload.queue, '') as queue,
    coalesce(workload.tenant, '') as tenant,
    clipped.cause,
    any_value(pending_cause.blame) as blame,
    any_value(pending_cause.is_bottleneck) as is_bottleneck,
    count(distinct clipped.workload_id) as workload_count,
    count(distinct clipped.workload_id) filter (where clipped.is_open) as open_count,
    sum(clipped.hours) as wait_hours,
    sum(clipped.hours) / count(distinct clipped.workload_id) as mean_wait_hours,
    sum(clipped.hours * coalesce(clipped.gpus, workload.pod_count * workload.num_gpu * workload.gpu_milli / 1000)) as gpu_hours,
    list_slice(list_sort(list(distinct clipped.reason) filter (where clipped.reason <> '')), 1, 5) as reasons
from clipped
left join workload using (workload_id)
left join pending_cause using (cause)
group by coalesce(workload.scheduler, ''), coalesce(workload.queue, ''), coalesce(workload.tenant, ''), clipped.cause
order by gpu_hours desc nulls last, scheduler, queue, tenant, clipped.cause;
