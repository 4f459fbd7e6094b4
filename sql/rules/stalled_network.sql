-- name: stalled_network(from_at, to_at)
-- What the cards of stalled work sent over NVLink and PCIe, and its nodes over the fabric, while it stood still, and while it moved.
-- Grain: one row per subject (a workload; of services a pod) that stalled in the window.
-- Columns: subject_kind varchar, subject_id varchar, workload_id varchar, card_count bigint, stalled_bytes_per_second double, moving_bytes_per_second double, stalled_fabric_bytes_per_second double, moving_fabric_bytes_per_second double
-- Reads: state_span, reading, link_reading
-- Units: bytes per second: of a card the mean of readings (PCIe counts where it has no NVLink counter); of a node's fabric, sent and received, the mean between readings
-- Ignores: work that did not stall; the fabric of nodes on which other work held cards then, and of the time between two readings in which a standstill began or ended. NULL where nothing was measured.
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
        node,
        gpu_uuid,
        slice_id,
        from_at,
        until_at,
        state = 'alloc_stalled' as is_stalled
    from state_span
    semi join stalled using (workload_id)
    where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz and activity = 'active'
),

-- What a node carried between two readings, all its ports.
carried as (
    select
        node,
        ts,
        min(before_at) as before_at,
        max(elapsed_seconds) as elapsed_seconds,
        sum(sent_bytes + received_bytes) as carried_bytes
    from link_step(:from_at::timestamptz, :to_at::timestamptz)
    where sent_bytes is not null and received_bytes is not null and node in (select spans.node from spans)
    group by node, ts
),

others as (
    select distinct node, workload_id, from_at, until_at
    from state_span
    where
        hour_at >= :from_at::timestamptz
        and hour_at < :to_at::timestamptz
        and allocation_id <> ''
        and node in (select spans.node from spans)
),

subjects as (select distinct subject_kind, subject_id, workload_id, node from spans),

-- Spans do not cross hours and pieces of one standstill touch: what is between two readings counts where it began and ended in one state.
judged as (
    select
        subjects.subject_kind,
        subjects.subject_id,
        subjects.workload_id,
        carried.node,
        carried.ts,
        carried.elapsed_seconds,
        carried.carried_bytes,
        bool_and(piece.is_stalled) as is_stalled
    from carried
    inner join subjects using (node)
    inner join spans as piece
        on
            subjects.subject_kind = piece.subject_kind
            and subjects.subject_id = piece.subject_id
            and subjects.node = piece.node
            and piece.from_at < carried.ts
            and piece.until_at > carried.before_at
    where not exists (
        select 1
        from others
        where
            others.node = carried.node
            and others.workload_id <> subjects.workload_id
            and others.from_at < carried.ts
            and others.until_at > carried.before_at
    )
    group by
        subjects.subject_kind,
        subjects.subject_id,
        subjects.workload_id,
        carried.node,
        carried.ts,
        carried.before_at,
        carried.elapsed_seconds,
        carried.carried_bytes
    having
        min(piece.from_at) <= carried.before_at
        and max(piece.until_at) >= carried.ts
        and (bool_and(piece.is_stalled) or not bool_or(piece.is_stalled))
),

fabric as (
    select
        subject_kind,
        subject_id,
        sum(carried_bytes) filter (where is_stalled) / sum(elapsed_seconds) filter (where is_stalled) as stalled_fabric_bytes_per_second,
        sum(carried_bytes) filter (where not is_stalled) / sum(elapsed_seconds) filter (where not is_stalled) as moving_fabric_bytes_per_second
    from judged
    group by subject_kind, subject_id
)

select
    spans.subject_kind,
    spans.subject_id,
    spans.workload_id,
    count(distinct spans.gpu_uuid || '/' || spans.slice_id) filter (where spans.is_stalled) as card_count,
    avg(told.bytes_per_second) filter (where spans.is_stalled) as stalled_bytes_per_second,
    avg(told.bytes_per_second) filter (where not spans.is_stalled) as moving_bytes_per_second,
    any_value(fabric.stalled_fabric_bytes_per_second) as stalled_fabric_bytes_per_second,
    any_value(fabric.moving_fabric_bytes_per_second) as moving_fabric_bytes_per_second
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
left join fabric on spans.subject_kind = fabric.subject_kind and spans.subject_id = fabric.subject_id
group by spans.subject_kind, spans.subject_id, spans.workload_id
having bool_or(spans.is_stalled);
