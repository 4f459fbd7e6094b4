-- name: quality_coverage(from_at, to_at)!
-- Write which cards were read less often than expected, and which were not read any more at the end of an hour.
-- Grain: one row per hour, source, card and kind; per hour, source and kind where another source shows the cards whole.
-- Reads: reading_hour, source_read, asset
-- Writes: quality
-- Units: `low_coverage`: readings that are missing, and the ratio that came; `stale`: the age of the last reading in seconds, of a source as a whole its cards
-- Ignores: cards that a source has not shown for a day, returned cards, and sources that list only cards with a process. A back-fill owes nothing after the last that it read. One or two missing readings of an hour are no loss.
insert into quality by name
with by_node as (
    select
        source,
        gpu_uuid,
        hour_at,
        node,
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

-- Slices repeat their card's readings; another name of the node does not.
known as (
    select
        source,
        gpu_uuid,
        hour_at,
        min(first_at) as first_at,
        max(last_at) as last_at,
        max(interval_seconds) as interval_seconds,
        sum(reading_count)::bigint as reading_count
    from by_node
    group by all
),

-- Until when each source owes readings: a back-fill up to the last that it read, of any card; every other one goes on.
duties as (
    select
        source,
        case
            when source = 'prometheus' then max(last_at + to_microseconds((interval_seconds * 1000000)::bigint))
            else :to_at::timestamptz
        end as until_at
    from known
    group by source
),

hours as (
    select
        hour_at,
        least(hour_at + interval 1 hour, :to_at::timestamptz) as ends_at
    from (select unnest(generate_series(:from_at::timestamptz, :to_at::timestamptz - interval 1 microsecond, interval 1 hour)) as hour_at)
),

due as (
    select hours.hour_at, duties.source, least(hours.ends_at, duties.until_at) as ends_at
    from hours
    inner join duties on hours.hour_at < duties.until_at
),

-- Every card that a source has shown in the day before, in each hour.
expected as (
    select
        due.hour_at,
        due.ends_at,
        known.source,
        known.gpu_uuid,
        max(known.last_at) as last_at,
        arg_max(known.interval_seconds, known.hour_at) as interval_seconds,
        coalesce(sum(known.reading_count) filter (where known.hour_at = due.hour_at), 0)::bigint as reading_count,
        epoch(due.ends_at - greatest(due.hour_at, min(known.first_at))) / arg_max(known.interval_seconds, known.hour_at) as expected_count
    from due
    inner join known
        on due.source = known.source and known.hour_at <= due.hour_at and known.hour_at >= due.hour_at - interval 1 day
    group by due.hour_at, due.ends_at, known.source, known.gpu_uuid
),

judged as (
    select
        *,
        reading_count < 0.9 * expected_count and expected_count - reading_count >= 2 as is_low,
        epoch(ends_at - last_at) as age_seconds,
        age_seconds > greatest(3 * interval_seconds, 120) as is_stale
    from expected
),

-- What one of a pair lacks and the other has is the trouble of that one, not of the card.
found as (
    select
        judged.*,
        exists(
            select 1
            from judged as other
            where
                other.hour_at = judged.hour_at
                and other.gpu_uuid = judged.gpu_uuid
                and other.source <> judged.source
                and not other.is_low
                and not other.is_stale
                and other.ends_at >= judged.ends_at
                and other.expected_count >= 0.9 * epoch(other.ends_at - other.hour_at) / other.interval_seconds
        ) as is_covered
    from judged
    where is_low or is_stale
),

problems as (
    select
        hour_at,
        source,
        case when is_covered then 'target' else 'gpu' end as subject_kind,
        case when is_covered then source else gpu_uuid end as subject,
        'low_coverage' as kind,
        round(expected_count - reading_count)::bigint as count,
        reading_count / expected_count as value
    from found
    where is_low
    union all
    select
        hour_at,
        source,
        case when is_covered then 'target' else 'gpu' end,
        case when is_covered then source else gpu_uuid end,
        'stale',
        1,
        age_seconds
    from found
    where is_stale
)

select
    hour_at,
    source,
    subject_kind,
    subject,
    kind,
    case when subject_kind = 'target' then 'another source shows the cards' else '' end as detail,
    sum(count)::bigint as count,
    case when kind = 'low_coverage' then min(value) else max(value) end as value
from problems
group by hour_at, source, subject_kind, subject, kind;
