-- name: quality_subjects(from_at, to_at)
-- What is wrong and where, summed over the window: what an operator can act on.
-- Grain: one row per source, kind, detail, kind of subject and vendor.
-- Columns: source varchar, kind varchar, detail varchar, subject_kind varchar, subject_count bigint, subjects varchar[], event_count bigint, worst_value double, vendor varchar
-- Reads: quality, reading_hour
-- Units: what is counted and what the value is depends on the kind; `subjects` are the first twenty
-- Ignores: the vendor of kinds whose remedy is the same for all, of subjects that are no cards or nodes, and of nodes with cards of several: it is empty.
-- Order: kind, source, detail, subject_kind, vendor
with vendors as (
    select subject, min(vendor) as vendor
    from (
        select node as subject, vendor
        from reading_hour
        where hour_at > :from_at::timestamptz - interval 1 hour and hour_at < :to_at::timestamptz
        union
        select gpu_uuid, vendor
        from reading_hour
        where hour_at > :from_at::timestamptz - interval 1 hour and hour_at < :to_at::timestamptz
    )
    group by subject
    having count(distinct vendor) = 1
)

select
    quality.source,
    quality.kind,
    quality.detail,
    quality.subject_kind,
    count(distinct quality.subject) as subject_count,
    list_slice(list_sort(list(distinct quality.subject)), 1, 20) as subjects,
    sum(quality.count)::bigint as event_count,
    case when quality.kind = 'low_coverage' then min(quality.value) else max(quality.value) end as worst_value,
    coalesce(vendors.vendor, '') as vendor
from quality
left join vendors
    on
        quality.subject = vendors.subject
        and quality.subject_kind in ('node', 'gpu')
        and quality.kind in ('missing_metric', 'blank_metric', 'vanished_metric', 'rejected_value', 'contradiction', 'active_unheld', 'missing_pod_labels')
where quality.hour_at > :from_at::timestamptz - interval 1 hour and quality.hour_at < :to_at::timestamptz
group by quality.source, quality.kind, quality.detail, quality.subject_kind, vendors.vendor
order by quality.kind, quality.source, quality.detail, quality.subject_kind, coalesce(vendors.vendor, '');
