-- name: quality_by_gpu(from_at, to_at)
-- What lowers trust in what is said of each card.
-- Grain: one row per card, source, kind and detail.
-- Columns: gpu_uuid varchar, source varchar, kind varchar, detail varchar, event_count bigint, hour_count bigint, worst_value double
-- Reads: quality
-- Units: what is counted and what the value is depends on the kind
-- Ignores: what is told of a node, a target or a series as a whole.
-- Order: gpu_uuid, kind, source, detail
select
    subject as gpu_uuid,
    source,
    kind,
    detail,
    sum(count)::bigint as event_count,
    count(distinct hour_at) as hour_count,
    case when kind = 'low_coverage' then min(value) else max(value) end as worst_value
from quality
where hour_at > :from_at::timestamptz - interval 1 hour and hour_at < :to_at::timestamptz and subject_kind = 'gpu'
group by subject, source, kind, detail
order by gpu_uuid, kind, source, detail;
