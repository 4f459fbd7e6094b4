-- name: ledger_device(from_at, to_at)!
-- Number what reported in the window: each card or slice is a device, each source of it a feed. Joining by numbers is cheap.
-- Grain: one row per gpu_uuid, slice_id and source.
-- Reads: reading
-- Writes: ledger_device
-- Units: seconds
-- Ignores: nothing. Where a source does not say how often it reads, it is the median distance of its readings of the card; 60 s where it has one only.
create or replace temp table ledger_device as
with feeds as (
    select gpu_uuid, slice_id, source, bool_or(interval_seconds is null) as is_silent
    from reading
    where ts >= :from_at::timestamptz and ts < :to_at::timestamptz
    group by all
),

distances as (
    select gpu_uuid, slice_id, source, epoch(ts - lag(ts) over (partition by gpu_uuid, slice_id, source order by ts)) as seconds
    from reading
    semi join (from feeds where is_silent) using (gpu_uuid, slice_id, source)
    where ts >= :from_at::timestamptz and ts < :to_at::timestamptz
),

-- The lower median: where just half of the reads are missing, the distance of two that are not.
spacings as (
    select gpu_uuid, slice_id, source, greatest(quantile_disc(seconds, 0.5), 1) as interval_seconds
    from distances
    group by all
)

select
    feeds.gpu_uuid,
    feeds.slice_id,
    feeds.source,
    case when feeds.is_silent then coalesce(spacings.interval_seconds, 60) end as interval_seconds,
    row_number() over (order by feeds.gpu_uuid, feeds.slice_id, feeds.source)::integer as feed,
    dense_rank() over (order by feeds.gpu_uuid, feeds.slice_id)::integer as device,
    count(*) over (partition by feeds.gpu_uuid, feeds.slice_id) > 1 as is_contested
from feeds
left join spacings using (gpu_uuid, slice_id, source);
