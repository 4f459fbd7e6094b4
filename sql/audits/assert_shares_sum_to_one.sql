-- name: assert_shares_sum_to_one(from_at, to_at)
-- Every card and hour whose shares overlap or leave a hole; must give no row.
-- Grain: one row per card and hour.
-- Columns: gpu_uuid varchar, hour_at timestamptz, gpu_hours double, covered_hours double
-- Reads: state_span
-- Units: GPU-hours; hours between the first and the last instant of the card in the hour
-- Ignores: nothing.
-- Order: gpu_uuid, hour_at
with spent as (
    select
        gpu_uuid,
        hour_at,
        sum(gpu_hours) as gpu_hours,
        epoch_us(max(until_at) - min(from_at)) / 3.6e9 as covered_hours
    from state_span
    where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz
    group by all
)

select gpu_uuid, hour_at, gpu_hours, covered_hours
from spent
where abs(gpu_hours - covered_hours) > 1e-6
order by gpu_uuid, hour_at;
