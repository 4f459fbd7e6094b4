-- name: quality_subjects(from_at, to_at)
-- What is wrong and where, summed over the window: what an operator can act on.
-- Grain: one row per source, kind, detail and kind of subject.
-- Columns: source varchar, kind varchar, detail varchar, subject_kind varchar, subject_count bigint, subjects varchar[], event_count bigint, worst_value double
-- Reads: quality
-- Units: what is counted and what the value is depends on the kind; `subjects` are the first twenty
-- Ignores: nothing.
-- Order: kind, source, detail, subject_kind
select
    source,
    kind,
    detail,
    subject_kind,
    count(distinct subject) as subject_count,
    list_slice(list_sort(list(distinct subject)), 1, 20) as subjects,
    sum(count)::bigint as event_count,
    case when kind = 'low_coverage' then min(value) else max(value) end as worst_value
from quality
where hour_at > :from_at::timestamptz - interval 1 hour and hour_at < :to_at::timestamptz
group by source, kind, detail, subject_kind
order by kind, source, detail, subject_kind;
