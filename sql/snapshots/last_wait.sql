-- name: last_wait(scheduler)
-- The last wait that ended of each of a scheduler's workloads that go on.
-- Grain: one row per workload.
-- Columns: workload_id varchar, from_at timestamptz, until_at timestamptz, cause varchar, reason varchar, message varchar,
--   gpus double, pods bigint
-- Reads: wait, workload
-- Units: GPUs
-- Ignores: workloads that are over, and waits that go on.
-- Order: workload_id
select wait.*
from wait
semi join (
    select workload_id from workload where scheduler = :scheduler::varchar and ended_at is null
) as own using (workload_id)
where wait.until_at is not null
qualify row_number() over (partition by wait.workload_id order by wait.until_at desc, wait.from_at desc) = 1
order by wait.workload_id;
