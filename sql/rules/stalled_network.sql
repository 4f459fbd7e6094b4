-- name: stalled_network(from_at, to_at)
-- What the cards of stalled work sent over NVLink and PCIe while it stood still, and while it moved.
-- Grain: one row per subject (a workload; of services a pod) that stalled in the window.
-- Columns: subject_kind varchar, subject_id varchar, workload_id varchar, card_count bigint, stalled_bytes_per_second double, moving_bytes_per_second double
-- Reads: state_span, reading
-- Units: bytes per second, the mean of readings; PCIe counts where a card has no NVLink counter
-- Ignores: work that did not stall. NULL where nothing was measured.
-- Order: none
with stalled as (
    select distinct workload_id
    from state_span
    where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz and state = 'alloc_stalled'
),

spans as (
    select
        case when kind = 'inference' then 'pod' else 'job' end as subject_kind,
        case when kind = 'inference' then pod else workload_id end as subject_id,
        workload_id,
        gpu_uuid,
        slice_id,
        from_at,
        until_at,
        state = 'alloc_stalled' as is_stalled
    from state_span
    semi join stalled using (workload_id)
    where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz and activity = 'active'
)

select
    spans.subject_kind,
    spans.subject_id,
    spans.workload_id,
    count(distinct spans.gpu_uuid || '/' || spans.slice_id) filter (where spans.is_stalled) as card_count,
    avg(told.bytes_per_second) filter (where spans.is_stalled) as stalled_bytes_per_second,
    avg(told.bytes_per_second) filter (where not spans.is_stalled) as moving_bytes_per_second
from spans
left join (
    select gpu_uuid, slice_id, ts, coalesce(nvlink_bytes_per_second, pcie_tx_bytes_per_second + pcie_rx_bytes_per_second) as bytes_per_second
    from reading
    where ts >= :from_at::timestamptz and ts < :to_at::timestamptz
) as told
    on
        spans.gpu_uuid = told.gpu_uuid
        and spans.slice_id = told.slice_id
        and told.ts >= spans.from_at
        and told.ts < spans.until_at
group by all
having bool_or(spans.is_stalled);
