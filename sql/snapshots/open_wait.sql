-- name: open_wait(scheduler)
-- The waits of a scheduler's workloads that have not ended.
-- Grain: one row per workload.
-- Columns: workload_id varchar, from_at timestamptz, until_at timestamptz, cause varchar, reason varchar, message varchar,
--   gpus double, pods bigint
-- Reads: wait, workload
-- Units: GPUs
-- Ignores: waits that ended.
-- Order: workload_id
select wait.*
from wait
semi join (select workload_id from workload where scheduler = :scheduler::varchar) as own using (workload_id)
where wait.until_at is null
qualify row_number() over (partition by wait.workload_id order by wait.from_at desc) = 1
order by wait.workload_id;
