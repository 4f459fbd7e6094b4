-- name: ettr_checkpoints(from_at, to_at)
-- How often training saves its progress, and how long it stands still for it.
-- Grain: one row.
-- Columns: interval_count bigint, interval_hours double, blocking_hours double
-- Reads: checkpoint
-- Units: hours; the median distance of checkpoints of one workload that follow each other within 24 h, and the mean of what blocked
-- Ignores: distances over 24 h, in which the work did not run.
-- Order: none
with followed as (
    select
        blocking_seconds,
        epoch_us(ts - lag(ts) over (partition by workload_id order by ts)) / 3.6e9 as hours
    from checkpoint
    where ts >= :from_at::timestamptz and ts < :to_at::timestamptz
)

select
    count(*) filter (where hours <= 24) as interval_count,
    median(hours) filter (where hours <= 24) as interval_hours,
    avg(blocking_seconds) / 3600 as blocking_hours
from followed;
