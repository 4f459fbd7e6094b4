-- name: owned_ratio(from_at, to_at)
-- How much of the GPU-hours that somebody held, or that worked, has an owner.
-- Grain: one row.
-- Columns: held_gpu_hours double, owned_gpu_hours double, unowned_gpu_hours double, worked_unheld_gpu_hours double,
--   owned_ratio double
-- Reads: state_span, quality
-- Units: GPU-hours; the ratio is owned by held and worked together, NULL where there is nothing
-- Ignores: free cards that did nothing.
-- Order: none
with held as (
    select
        coalesce(sum(gpu_hours), 0) as held_gpu_hours,
        coalesce(sum(gpu_hours) filter (where tenant <> ''), 0) as owned_gpu_hours
    from state_span
    where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz and allocation_id <> ''
),

worked as (
    select coalesce(sum(count), 0)::double / 60 as worked_unheld_gpu_hours
    from quality
    where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz and kind = 'active_unheld'
)

select
    held.held_gpu_hours,
    held.owned_gpu_hours,
    held.held_gpu_hours - held.owned_gpu_hours as unowned_gpu_hours,
    worked.worked_unheld_gpu_hours,
    held.owned_gpu_hours / nullif(held.held_gpu_hours + worked.worked_unheld_gpu_hours, 0) as owned_ratio
from held
cross join worked;
