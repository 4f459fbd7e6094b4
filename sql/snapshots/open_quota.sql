-- name: open_quota(scheduler)
-- The quotas of a scheduler's queues that have not ended.
-- Grain: one row per queue and flavor.
-- Columns: queue varchar, tenant varchar, flavor varchar, nominal_gpus double, borrowing_limit_gpus double,
--   lending_limit_gpus double, limit_gpus double, guarantee_gpus double, weight double, not_reported varchar,
--   from_at timestamptz, until_at timestamptz
-- Reads: quota, queue
-- Units: GPUs
-- Ignores: quotas that ended.
-- Order: queue, flavor
select quota.*
from quota
semi join (select queue from queue where scheduler = :scheduler::varchar) as own using (queue)
where quota.until_at is null
qualify row_number() over (partition by quota.queue, quota.flavor order by quota.from_at desc) = 1
order by quota.queue, quota.flavor;
