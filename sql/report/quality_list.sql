-- name: quality_list(kind, from_at, to_at, limit_count)
-- The rows of one kind (empty: all), the newest first.
-- Grain: one row per hour, source, subject, kind and detail.
-- Columns: hour_at timestamptz, source varchar, subject_kind varchar, subject varchar, kind varchar, detail varchar, count bigint, value double
-- Reads: quality
-- Units: what is counted and what the value is depends on the kind
-- Ignores: rows beyond `limit_count`.
-- Order: hour_at, newest first, then the largest count
select hour_at, source, subject_kind, subject, kind, detail, count, value
from quality
where
    hour_at > :from_at::timestamptz - interval 1 hour
    and hour_at < :to_at::timestamptz
    and (:kind = '' or kind = :kind)
order by hour_at desc, count desc, kind, source, subject, detail
limit :limit_count;
