-- name: energy_by_gpu(from_at, to_at)
-- The energy that each card took by its own counter, resets seen through.
-- Grain: one row per card.
-- Columns: gpu_uuid varchar, energy_joules double, energy_kwh double, reset_count bigint, impossible_count bigint, reading_count bigint
-- Reads: reading_hour
-- Units: joules, kilowatt-hours; NULL where no two readings had the counter
-- Ignores: rises that the card cannot have drawn (they are counted), and, where several sources see a card, all but the one that read its counter most often in the hour.
-- Order: gpu_uuid
with best as (
    select *
    from reading_hour
    where
        hour_at > :from_at::timestamptz - interval 1 hour
        and hour_at < :to_at::timestamptz
        and slice_id = ''
        and energy_count > 0
    qualify row_number() over (partition by gpu_uuid, hour_at order by energy_count desc, source) = 1
)

select
    gpu_uuid,
    sum(energy_joules) as energy_joules,
    sum(energy_joules) / 3.6e6 as energy_kwh,
    sum(energy_reset_count)::bigint as reset_count,
    sum(energy_impossible_count)::bigint as impossible_count,
    sum(energy_count)::bigint as reading_count
from best
group by gpu_uuid
order by gpu_uuid;
