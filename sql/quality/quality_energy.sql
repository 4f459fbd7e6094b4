-- name: quality_energy(from_at, to_at)!
-- Write where energy counters began anew, and where they rose by more than the card can draw.
-- Grain: one row per hour, source, card and kind; the source is the one that showed it first.
-- Reads: reading_hour
-- Writes: quality
-- Units: counts
-- Ignores: slices: what is wrong with one is counted at its card.
insert into quality by name
with cards as (
    select
        hour_at,
        source,
        gpu_uuid,
        unnest([
            {'kind': 'counter_reset', 'count': sum(energy_reset_count)},
            {'kind': 'impossible_increase', 'count': sum(energy_impossible_count)}
        ]) as found
    from reading_hour
    where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz
    group by hour_at, source, gpu_uuid
)

select
    hour_at,
    source,
    'gpu' as subject_kind,
    gpu_uuid as subject,
    found.kind as kind,
    '' as detail,
    found.count::bigint as count,
    null::double as value
from cards
where found.count > 0;
