-- name: quality_told(from_at, to_at)!
-- Sum by hour what readers of sources told as events.
-- Grain: one row per hour, source, subject, kind and detail.
-- Reads: quality_event
-- Writes: quality
-- Units: counts; of clocks that are apart the largest distance, in seconds; of quotas that are exceeded or do not add up the largest amount, in GPUs or the resource's unit
-- Ignores: contradictions: readings carry them as a flag, and are counted there.
insert into quality by name
select
    date_trunc('hour', ts) as hour_at,
    source,
    subject_kind,
    subject,
    kind,
    detail,
    (case when kind in ('clock_skew', 'quota_mismatch', 'limit_not_enforced', 'over_promised') then count(*) else sum(count) end)::bigint as count,
    case when kind in ('clock_skew', 'quota_mismatch', 'limit_not_enforced', 'over_promised') then max(count)::double end as value
from quality_event
where ts >= :from_at::timestamptz and ts < :to_at::timestamptz and kind <> 'contradiction'
group by date_trunc('hour', ts), source, subject_kind, subject, kind, detail;
