-- name: ledger_device(from_at, to_at)!
-- Number what reported in the window: each card or slice is a device, each source of it a feed. Joining by numbers is cheap.
-- Grain: one row per gpu_uuid, slice_id and source.
-- Reads: reading
-- Writes: ledger_device
-- Units: none
-- Ignores: nothing. `is_silent`: the source does not say how often it reads.
create or replace temp table ledger_device as
with feeds as (
    select gpu_uuid, slice_id, source, bool_or(interval_seconds is null) as is_silent
    from reading
    where ts >= :from_at::timestamptz and ts < :to_at::timestamptz
    group by all
)

select
    *,
    row_number() over (order by gpu_uuid, slice_id, source)::integer as feed,
    dense_rank() over (order by gpu_uuid, slice_id)::integer as device,
    count(*) over (partition by gpu_uuid, slice_id) > 1 as is_contested
from feeds;
