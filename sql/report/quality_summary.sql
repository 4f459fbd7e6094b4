-- name: quality_summary(from_at, to_at)
-- What lowers trust in the records, by source and kind.
-- Grain: one row per source and kind.
-- Columns: source varchar, kind varchar, subject_count bigint, event_count bigint, hour_count bigint, worst_value double, last_at timestamptz
-- Reads: quality
-- Units: subjects are cards, nodes, targets or series; what is counted and what the value is depends on the kind; last_at is the start of the last hour
-- Ignores: hours in which nothing was wrong have no row.
-- Order: kind, source
select
    source,
    kind,
    count(distinct subject) as subject_count,
    sum(count)::bigint as event_count,
    count(distinct hour_at) as hour_count,
    case when kind = 'low_coverage' then min(value) else max(value) end as worst_value,
    max(hour_at) as last_at
from quality
where hour_at > :from_at::timestamptz - interval 1 hour and hour_at < :to_at::timestamptz
group by source, kind
order by kind, source;
