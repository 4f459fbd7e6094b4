-- name: findings_by_cause(from_at, to_at)
-- How much each rule found, by cause.
-- Grain: one row per analyzer and cause.
-- Columns: analyzer varchar, cause_code varchar, finding_count bigint, gpu_hours_wasted double
-- Reads: finding
-- Units: GPU-hours
-- Ignores: findings whose window does not touch the period.
-- Order: gpu_hours_wasted, largest first
select
    analyzer,
    cause_code,
    count(*) as finding_count,
    sum(gpu_hours_wasted) as gpu_hours_wasted
from finding
where window_start < :to_at::timestamptz and window_end > :from_at::timestamptz
group by analyzer, cause_code
order by gpu_hours_wasted desc, analyzer, cause_code;
