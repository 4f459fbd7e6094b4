-- name: energy_by_gpu(from_at, to_at)
-- The energy that each card took by its own counter, whoever read it, resets and stale copies seen through.
-- Grain: one row per card.
-- Columns: gpu_uuid varchar, energy_joules double, energy_kwh double, reset_count bigint, impossible_count bigint, reading_count bigint
-- Reads: reading_hour
-- Units: joules, kilowatt-hours; NULL where no two readings had the counter, and where no rise could be counted
-- Ignores: rises that the card cannot have drawn (they are counted). A rise over a gap of up to a day is in the hour in which it was seen.
-- Order: gpu_uuid
with risen as (
    select
        gpu_uuid,
        sum(energy_joules) as joules,
        sum(energy_reset_count)::bigint as reset_count,
        sum(energy_impossible_count)::bigint as impossible_count,
        sum(energy_count)::bigint as reading_count
    from reading_hour
    where
        hour_at > :from_at::timestamptz - interval 1 hour
        and hour_at < :to_at::timestamptz
        and slice_id = ''
        and energy_count > 0
    group by gpu_uuid
)

select
    gpu_uuid,
    case when impossible_count > 0 then nullif(joules, 0) else joules end as energy_joules,
    energy_joules / 3.6e6 as energy_kwh,
    reset_count,
    impossible_count,
    reading_count
from risen
order by gpu_uuid;
