-- name: open_workload(scheduler)
-- The workloads of a scheduler that are not known to have ended.
-- Grain: one row per workload.
-- Columns: workload_id varchar, name varchar, kind varchar, stage varchar, tenant varchar, user varchar, queue varchar,
--   submitted_at timestamptz, started_at timestamptz, ended_at timestamptz, pod_count bigint, num_gpu bigint,
--   gpu_milli bigint, cpu_milli bigint, memory_mib bigint, model_set varchar, min_replicas bigint, priority bigint,
--   is_gang boolean, scheduler varchar, namespace varchar, status varchar, eligible_at timestamptz, attempt bigint,
--   pending_cause varchar, pending_reason varchar
-- Reads: workload
-- Units: thousandths of a GPU and of a CPU, MiB
-- Ignores: workloads that a scheduler did not tell of.
-- Order: workload_id
select *
from workload
where
    scheduler = :scheduler::varchar
    and ended_at is null
    and status not in ('finished', 'failed', 'cancelled')
order by workload_id;
