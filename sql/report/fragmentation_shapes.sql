-- name: fragmentation_shapes(at, history_days)
-- The shapes that work has asked for until an instant, and how many pods of each wait at it.
-- Grain: one row per shape.
-- Columns: cpu_milli bigint, memory_mib bigint, gpu_milli bigint, num_gpu bigint, model_set varchar, pods double,
--   pending_pods double, is_pending boolean, recent_demand_milli double
-- Reads: workload
-- Units: thousandths of a CPU and a GPU, MiB, pods; `recent_demand_milli` is what was asked for in the 28 days before the
--   end of the hour, as the ledger counts usual shapes
-- Ignores: for `pods`, work submitted more than `history_days` before (NULL for no limit).
-- Order: num_gpu, gpu_milli, cpu_milli, memory_mib, model_set
with work as (
    select
        cpu_milli,
        memory_mib,
        case when num_gpu > 0 then gpu_milli else 0 end as gpu_milli,
        case when gpu_milli > 0 then num_gpu else 0 end as num_gpu,
        model_set,
        pod_count,
        submitted_at <= :at::timestamptz
        and (
            :history_days::double is null
            or submitted_at > :at::timestamptz - to_microseconds((:history_days::double * 86400000000)::bigint)
        ) as is_asked,
        submitted_at <= :at::timestamptz and coalesce(least(started_at, ended_at) > :at::timestamptz, true) as is_pending,
        submitted_at >= hour.counted_until_at - interval 28 day and submitted_at < hour.counted_until_at as is_recent
    from workload
    cross join (
        select make_timestamptz((epoch_us(:at::timestamptz) // 3600000000 + 1) * 3600000000) as counted_until_at
    ) as hour
    where submitted_at < hour.counted_until_at
)

select
    cpu_milli,
    memory_mib,
    gpu_milli,
    num_gpu,
    model_set,
    coalesce(sum(pod_count) filter (where is_asked), 0)::double as pods,
    coalesce(sum(pod_count) filter (where is_pending), 0)::double as pending_pods,
    bool_or(is_pending) as is_pending,
    coalesce(sum(pod_count * num_gpu * gpu_milli) filter (where is_recent), 0)::double as recent_demand_milli
from work
group by cpu_milli, memory_mib, gpu_milli, num_gpu, model_set
order by num_gpu, gpu_milli, cpu_milli, memory_mib, model_set;
