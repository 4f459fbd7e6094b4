-- name: quality_reading(from_at, to_at)!
-- Write what is wrong with readings: values that are none, contradictions, slow reads.
-- Grain: one row per hour, source, subject and kind; the subject is a card, of slow reads a node.
-- Reads: reading_hour
-- Writes: quality
-- Units: counts of values or readings; of slow reads cards, and seconds between reads
-- Ignores: slices: what is wrong with one is counted at its card.
insert into quality by name
with cards as (
    select
        hour_at,
        source,
        gpu_uuid,
        unnest([
            {'kind': 'rejected_value', 'count': sum(rejected_count)},
            {'kind': 'contradiction', 'count': sum(contradicted_count)}
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
where found.count > 0
union all
select hour_at, source, 'node', node, 'slow_interval', '', count(distinct gpu_uuid), max(interval_seconds)
from reading_hour
where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz and interval_seconds > 60
group by hour_at, source, node;
