-- name: activity_hour(from_at, to_at)!
-- Append what each held share did in each hour, counted by its minutes.
-- Grain: one row per hour, card, slice and allocation.
-- Reads: ledger_piece, ledger_hold, ledger_card
-- Writes: activity_hour
-- Units: minutes, ratios 0 to 1, bytes, watts, hertz; means are weighted by time
-- Ignores: shares of which it is not known on which card they are. Minutes in a declared quiet phase are counted apart, and are neither active nor idle. Ratios, clocks and rates run over the minutes that were active and had a value; power and memory over all observed minutes. Of an hour's sixty minutes the 99th percentile is the greatest.
insert into activity_hour by name
with counted as (
    select
        hour_at,
        hold,
        sum(share * piece_seconds) / sum(piece_seconds) as share,
        sum(piece_seconds) / 60 as held_minutes,
        coalesce(sum(piece_seconds) filter (where read_seconds > 0), 0) / 60 as observed_minutes,
        coalesce(sum(piece_seconds) filter (where activity = 'active' and phase = ''), 0) / 60 as active_minutes,
        coalesce(sum(piece_seconds) filter (where activity = 'idle' and phase = ''), 0) / 60 as idle_minutes,
        coalesce(sum(piece_seconds) filter (where activity = 'active' and phase = '' and coalesce(sm_active_ratio, core_active_ratio) < 0.05), 0) / 60 as zero_minutes,
        coalesce(sum(piece_seconds) filter (where phase <> ''), 0) / 60 as phase_minutes,
        coalesce(sum(piece_seconds) filter (where is_throttled), 0) / 60 as throttled_minutes,
        sum(gpu_util_ratio * piece_seconds) filter (where activity = 'active' and phase = '')
        / sum(piece_seconds) filter (where activity = 'active' and phase = '' and gpu_util_ratio is not null) as gpu_util_ratio,
        sum(sm_active_ratio * piece_seconds) filter (where activity = 'active' and phase = '')
        / sum(piece_seconds) filter (where activity = 'active' and phase = '' and sm_active_ratio is not null) as sm_active_ratio,
        sum(core_active_ratio * piece_seconds) filter (where activity = 'active' and phase = '')
        / sum(piece_seconds) filter (where activity = 'active' and phase = '' and core_active_ratio is not null) as core_active_ratio,
        sum(gr_engine_active_ratio * piece_seconds) filter (where activity = 'active' and phase = '')
        / sum(piece_seconds) filter (where activity = 'active' and phase = '' and gr_engine_active_ratio is not null) as gr_engine_active_ratio,
        sum(tensor_active_ratio * piece_seconds) filter (where activity = 'active' and phase = '')
        / sum(piece_seconds) filter (where activity = 'active' and phase = '' and tensor_active_ratio is not null) as tensor_active_ratio,
        sum(dram_active_ratio * piece_seconds) filter (where activity = 'active' and phase = '')
        / sum(piece_seconds) filter (where activity = 'active' and phase = '' and dram_active_ratio is not null) as dram_active_ratio,
        max(fb_used_bytes) as fb_used_bytes,
        max(fb_total_bytes) as fb_total_bytes,
        sum(power_watts * piece_seconds) / sum(piece_seconds) filter (where power_watts is not null) as power_watts,
        sum(sm_clock_hertz * piece_seconds) filter (where activity = 'active' and phase = '')
        / sum(piece_seconds) filter (where activity = 'active' and phase = '' and sm_clock_hertz is not null) as sm_clock_hertz,
        sum(pcie_bytes_per_second * piece_seconds) filter (where activity = 'active' and phase = '')
        / sum(piece_seconds) filter (where activity = 'active' and phase = '' and pcie_bytes_per_second is not null) as pcie_bytes_per_second,
        sum(nvlink_bytes_per_second * piece_seconds) filter (where activity = 'active' and phase = '')
        / sum(piece_seconds) filter (where activity = 'active' and phase = '' and nvlink_bytes_per_second is not null) as nvlink_bytes_per_second,
        sum(read_seconds * piece_seconds / 60) / sum(piece_seconds) as coverage_ratio,
        bool_or(is_shared) as is_shared
    from ledger_piece
    where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz
    group by hour_at, hold
),

places as (
    select gpu_uuid, arg_max(node, from_at) as node
    from ledger_card
    group by gpu_uuid
)

select counted.* exclude (hold), held.gpu_uuid, held.slice_id, held.allocation_id, held.workload_id, places.node
from counted
inner join ledger_hold as held using (hold)
inner join places on held.gpu_uuid = places.gpu_uuid
where held.is_placed;
