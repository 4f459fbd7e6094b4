-- name: open_allocation(scheduler)
-- The allocations of a scheduler's pods that are not known to have ended.
-- Grain: one row per allocation.
-- Columns: allocation_id varchar, workload_id varchar, pod varchar, node varchar, gpu_uuid varchar, slice_id varchar,
--   share double, cpu_milli bigint, memory_mib bigint, started_at timestamptz, ready_at timestamptz, ended_at timestamptz
-- Reads: allocation, pod, workload
-- Units: share of a physical GPU
-- Ignores: allocations that were sent by others: a reader's begin with the uid of the pod.
-- Order: allocation_id
select allocation.*
from allocation
semi join (
    select pod.uid, pod.workload_id
    from pod
    semi join (select workload_id from workload where scheduler = :scheduler::varchar) as own using (workload_id)
) as own on allocation.workload_id = own.workload_id and starts_with(allocation.allocation_id, own.uid || '/')
where allocation.ended_at is null
order by allocation.allocation_id;
