-- name: quality_coverage(from_at, to_at)!
-- Write which cards were read less often than expected, and which were not read any more at the end of an hour.
-- Grain: one row per hour, source, card and kind.
-- Reads: reading_hour, source_read, asset
-- Writes: quality
-- Units: `low_coverage`: readings that are missing, and the ratio that came; `stale`: the age of the last reading in seconds
-- Ignores: cards that a source has not shown for a day, returned cards, and sources that list only cards with a process. One or two missing readings of an hour are no loss.
insert into quality by name
with known as (
    select
        source,
        gpu_uuid,
        hour_at,
        min(first_at) as first_at,
        max(last_at) as last_at,
        max(interval_seconds) as interval_seconds,
        max(reading_count) as reading_count
    from reading_hour
    where
        hour_at >= :from_at::timestamptz - interval 1 day
        and hour_at < :to_at::timestamptz
        and source not in (
            select source
            from source_read
            where scope = 'process' and ts >= :from_at::timestamptz and ts < :to_at::timestamptz
        )
        and gpu_uuid not in (select gpu_uuid from asset where status = 'returned' and from_at < :to_at::timestamptz)
    group by all
),

hours as (
    select
        hour_at,
        least(hour_at + interval 1 hour, :to_at::timestamptz) as ends_at
    from (select unnest(generate_series(:from_at::timestamptz, :to_at::timestamptz - interval 1 microsecond, interval 1 hour)) as hour_at)
),

-- Every card that a source has shown in the day before, in each hour.
expected as (
    select
        hours.hour_at,
        hours.ends_at,
        known.source,
        known.gpu_uuid,
        max(known.last_at) as last_at,
        arg_max(known.interval_seconds, known.hour_at) as interval_seconds,
        coalesce(sum(known.reading_count) filter (where known.hour_at = hours.hour_at), 0) as reading_count,
        epoch(hours.ends_at - greatest(hours.hour_at, min(known.first_at))) / arg_max(known.interval_seconds, known.hour_at) as expected_count
    from hours
    inner join known on known.hour_at <= hours.hour_at and known.hour_at >= hours.hour_at - interval 1 day
    group by hours.hour_at, hours.ends_at, known.source, known.gpu_uuid
)

select
    hour_at,
    source,
    'gpu' as subject_kind,
    gpu_uuid as subject,
    'low_coverage' as kind,
    '' as detail,
    round(expected_count - reading_count)::bigint as count,
    reading_count / expected_count as value
from expected
where reading_count < 0.9 * expected_count and expected_count - reading_count >= 2
union all
select hour_at, source, 'gpu', gpu_uuid, 'stale', '', 1, epoch(ends_at - last_at)
from expected
where epoch(ends_at - last_at) > greatest(3 * interval_seconds, 120);
