-- name: energy_next(from_at, to_at)
-- Hours after a window in which the energy counter of a card of the window was read next.
-- Grain: one row per hour.
-- Writes: nothing
-- Reads: reading_hour
-- Units: none
-- Ignores: hours that were not worked out yet, and those more than a day later.
with read_next as (
    select min(hour_at) as hour_at
    from reading_hour
    where
        hour_at >= :from_at::timestamptz
        and hour_at < :to_at::timestamptz + interval 1 day
        and energy_count > 0
    group by gpu_uuid, slice_id, hour_at >= :to_at::timestamptz
    qualify count(*) over (partition by gpu_uuid, slice_id) = 2
)

select distinct hour_at
from read_next
where hour_at >= :to_at::timestamptz
order by hour_at;
