-- name: quota_current(at)
-- The quotas in force at an instant.
-- Grain: one row per queue and flavor.
-- Columns: queue varchar, tenant varchar, flavor varchar, nominal_gpus double, borrowing_limit_gpus double, lending_limit_gpus double, guarantee_gpus double, weight double, from_at timestamptz, until_at timestamptz
-- Reads: quota
-- Units: GPUs; a NULL limit is "unlimited"
-- Ignores: quotas that ended or have not begun.
-- Order: queue, flavor
select *
from quota
where from_at <= :at::timestamptz and coalesce(until_at > :at::timestamptz, true)
qualify row_number() over (partition by queue, flavor order by from_at desc) = 1
order by queue, flavor;
