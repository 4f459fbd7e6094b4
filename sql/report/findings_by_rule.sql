-- name: findings_by_rule()
-- How many findings of each rule are stored, and what they add up to.
-- Grain: one row per analyzer.
-- Columns: analyzer varchar, finding_count bigint, open_count bigint, gpu_hours_wasted double, gpu_hours_lost double
-- Reads: finding
-- Units: GPU-hours
-- Ignores: nothing.
-- Order: by analyzer
select
    analyzer,
    count(*) as finding_count,
    count(*) filter (where is_open) as open_count,
    sum(gpu_hours_wasted) as gpu_hours_wasted,
    sum(gpu_hours_lost) as gpu_hours_lost
from finding
group by analyzer
order by analyzer;
