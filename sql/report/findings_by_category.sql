-- name: findings_by_category(from_at, to_at, tenant)
-- How many findings of each category touch a period, and the GPU-hours that they are about.
-- Grain: one row per category.
-- Columns: category varchar, finding_count bigint, open_count bigint, gpu_hours_wasted double, gpu_hours_observed double, gpu_hours_lost double
-- Reads: finding
-- Units: GPU-hours of the findings as a whole, also where only a part of one lies in the period
-- Ignores: other tenants, where one is given. What advice is about was observed, not wasted; pieces of advice may speak of the same hours.
-- Order: waste, quota, health, advice
select
    category,
    count(*) as finding_count,
    count(*) filter (where is_open) as open_count,
    sum(gpu_hours_wasted) as gpu_hours_wasted,
    sum(gpu_hours_observed) as gpu_hours_observed,
    sum(gpu_hours_lost) as gpu_hours_lost
from finding
where
    window_start < :to_at::timestamptz
    and window_end > :from_at::timestamptz
    and (:tenant = '' or tenant = :tenant)
group by category
order by list_position(['waste', 'quota', 'health', 'advice'], category);
