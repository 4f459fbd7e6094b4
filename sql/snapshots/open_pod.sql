-- name: open_pod(scheduler)
-- The pods of a scheduler's workloads that are not known to have ended.
-- Grain: one row per pod.
-- Columns: uid varchar, cluster varchar, namespace varchar, pod varchar, node varchar, workload_id varchar,
--   gpu_count double, resource varchar, phase varchar, owner_kind varchar, owner_name varchar, labels varchar,
--   created_at timestamptz, started_at timestamptz, ended_at timestamptz, seen_at timestamptz
-- Reads: pod, workload
-- Units: count of its resource
-- Ignores: pods of workloads that a scheduler did not tell of: what is no more listed of these ends by itself (ledger_pod).
-- Order: uid
select pod.*
from pod
semi join (select workload_id from workload where scheduler = :scheduler::varchar) as own using (workload_id)
where
    coalesce(pod.ended_at < pod.seen_at, true)
    and coalesce(pod.phase not in ('Succeeded', 'Failed'), true)
order by pod.uid;
