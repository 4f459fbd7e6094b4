-- name: quota_current(at)
-- The quotas in force at an instant.
-- Grain: one row per queue and flavor.
-- Columns: queue varchar, tenant varchar, flavor varchar, nominal_gpus double, borrowing_limit_gpus double, lending_limit_gpus double, limit_gpus double, guarantee_gpus double, weight double, not_reported varchar, from_at timestamptz, until_at timestamptz
-- Reads: quota
-- Units: GPUs; NULL is "unlimited", or "not reported" where `not_reported` names the column
-- Ignores: quotas that ended or have not begun.
-- Order: queue, flavor
select *
from quota
where from_at <= :at::timestamptz and coalesce(until_at > :at::timestamptz, true)
qualify row_number() over (partition by queue, flavor order by from_at desc) = 1
order by queue, flavor;
