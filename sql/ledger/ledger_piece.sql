-- name: ledger_piece(from_at, to_at)!
-- Each held share minute by minute, with what telemetry said of it.
-- Grain: one row per hold and minute (two where the minute is cut by a change).
-- Reads: ledger_slot, ledger_hold, ledger_phase, ledger_serving, ledger_device, ledger_minute, source_read, vendor_rule
-- Writes: ledger_piece
-- Units: share of a physical GPU, seconds, ratios, watts, bytes, hertz
-- Ignores: held shares of cards that are unavailable, and what telemetry says of a card of which it is not known that the hold is on it. Shares that add up to more than a card are scaled to one. Activity of a card that several pods share by time-slicing cannot be told apart: it is active for all or idle for all, and never graded.
create or replace temp table ledger_piece as
with phases as (
    select phase.hold, slot.from_at as slot_from_at, min(phase.phase) as phase
    from ledger_phase as phase
    inner join ledger_hold as hold using (hold)
    inner join ledger_slot as slot
        on hold.gpu_uuid = slot.gpu_uuid and slot.from_at >= phase.from_at and slot.from_at < phase.until_at
    group by phase.hold, slot.from_at
),

shares as (
    select
        slot.gpu_uuid,
        slot.from_at,
        slot.until_at,
        slot.hour_at,
        slot.node,
        slot.vendor,
        slot.idle_below_watts,
        slot.stalled_below_watts,
        hold.hold,
        hold.job,
        hold.is_placed,
        seen.device,
        hold.share / greatest(1, sum(hold.share) over of_card) as share,
        count(*) over (partition by slot.gpu_uuid, slot.from_at, hold.slice_id) > 1 as is_shared,
        coalesce(slot.from_at < hold.ready_at, true) as is_before_ready,
        coalesce(slot.from_at < hold.graced_until_at, true) as is_in_grace,
        coalesce(slot.from_at >= hold.floor_from_at, false) as is_floor,
        coalesce(phases.phase, '') as phase
    from ledger_slot as slot
    inner join ledger_hold as hold
        on
            slot.gpu_uuid = hold.gpu_uuid
            and slot.from_at >= hold.started_at
            and coalesce(slot.from_at < hold.ended_at, true)
    left join (select distinct gpu_uuid, slice_id, device from ledger_device) as seen
        on hold.is_placed and hold.gpu_uuid = seen.gpu_uuid and hold.slice_id = seen.slice_id
    left join phases on hold.hold = phases.hold and slot.from_at = phases.slot_from_at
    where slot.unavailable_cause is null
    window of_card as (partition by slot.gpu_uuid, slot.from_at)
),

minutes as (
    select
        *,
        unnest(range(epoch_us(from_at) // 60000000, (epoch_us(until_at) + 59999999) // 60000000))::integer as minute
    from shares
),

cut as (
    select
        * exclude (from_at, until_at),
        greatest(from_at, make_timestamptz(minute::bigint * 60000000)) as from_at,
        least(until_at, make_timestamptz((minute + 1)::bigint * 60000000)) as until_at
    from minutes
),

-- A read stands for its interval, in minutes, as a reading does.
answers as (
    select
        node,
        ts,
        coalesce(interval_seconds, 60) as interval_seconds,
        unnest(range(
            epoch_us(ts) // 60000000, epoch_us(ts) // 60000000 + greatest(1, ceil(coalesce(interval_seconds, 60) / 60)::bigint)
        ))::integer as minute
    from source_read
    where ts >= :from_at::timestamptz and ts < :to_at::timestamptz and ok and scope = 'process'
),

process_reads as (
    select
        node,
        minute,
        max(interval_seconds) as interval_seconds,
        least(sum(interval_seconds), 60) as read_seconds,
        min(ts) as first_at,
        max(ts) as last_at
    from answers
    group by all
),

read as (
    select
        cut.*,
        epoch_us(cut.until_at - cut.from_at) / 1e6 as piece_seconds,
        coalesce(seen.first_at, answered.first_at) as first_at,
        coalesce(seen.last_at, answered.last_at) as last_at,
        coalesce(seen.read_seconds, answered.read_seconds, 0) as read_seconds,
        coalesce(seen.interval_seconds, answered.interval_seconds, 60) as interval_seconds,
        coalesce(seen.gpu_util_ratio, case when seen.minute is null and answered.minute is not null then 0 end) as gpu_util_ratio,
        seen.sm_active_ratio,
        seen.gr_engine_active_ratio,
        seen.tensor_active_ratio,
        seen.dram_active_ratio,
        seen.core_active_ratio,
        seen.codec_util_ratio,
        seen.fb_used_bytes,
        seen.fb_total_bytes,
        seen.power_watts,
        seen.sm_clock_hertz,
        seen.pcie_bytes_per_second,
        seen.nvlink_bytes_per_second,
        coalesce(seen.is_throttled, false) as is_throttled,
        coalesce(seen.process_count, case when seen.minute is null and answered.minute is not null then 0 end) as process_count,
        coalesce(seen.is_contradicted, false) as is_contradicted,
        serving.hold is not null as is_serving
    from cut
    left join ledger_minute as seen
        on cut.device = seen.device and cut.minute = seen.minute
    left join ledger_serving as serving
        on cut.hold = serving.hold and cut.minute = serving.minute
    left join process_reads as answered on cut.is_placed and cut.node = answered.node and cut.minute = answered.minute
),

tested as (
    select
        read.*,
        case
            when sm_active_ratio is not null and rule.sm_idle_below_ratio is not null then 'sm_active'
            when core_active_ratio is not null and rule.core_idle_below_ratio is not null then 'core_active'
            when gr_engine_active_ratio is not null and rule.gr_engine_idle_below_ratio is not null then 'gr_engine_active'
            when seen_processes.is_none then 'no_process'
            when gpu_util_ratio is not null then 'gpu_util'
            when power_watts is not null then 'power'
        end as signal,
        case
            when sm_active_ratio is not null and rule.sm_idle_below_ratio is not null then sm_active_ratio < rule.sm_idle_below_ratio
            when core_active_ratio is not null and rule.core_idle_below_ratio is not null then core_active_ratio < rule.core_idle_below_ratio
            when gr_engine_active_ratio is not null and rule.gr_engine_idle_below_ratio is not null then gr_engine_active_ratio < rule.gr_engine_idle_below_ratio
            else gpu_util_ratio < rule.gpu_util_idle_below_ratio
        end
        -- Without a threshold the memory has no say.
        and coalesce(dram_active_ratio < rule.dram_idle_below_ratio, true) as is_quiet,
        coalesce(codec_util_ratio < 0.01, true) as is_codec_quiet,
        coalesce(power_watts < idle_below_watts, true) as is_power_low,
        rule.is_power_needed and (power_watts < idle_below_watts) is null as is_power_missed,
        case
            when not rule.is_graded_by_core and sm_active_ratio is not null then sm_active_ratio
            when core_active_ratio is not null and rule.core_idle_below_ratio is not null then core_active_ratio
            -- Tensor cores work inside SMs: their activity alone is the least that SM activity can be.
            when not rule.is_graded_by_core and tensor_active_ratio >= rule.productive_from_ratio then tensor_active_ratio
        end as grade_ratio,
        case
            when core_active_ratio is not null and (rule.is_graded_by_core or sm_active_ratio is null) then coalesce(rule.core_idle_below_ratio, rule.productive_from_ratio)
            else rule.productive_from_ratio
        end as productive_from_ratio,
        coalesce(gpu_util_ratio, core_active_ratio) >= rule.busy_from_ratio as is_busy,
        gpu_util_ratio >= rule.busy_from_ratio
        and case
            when core_active_ratio is not null and rule.still_core_below_ratio is not null then core_active_ratio < rule.still_core_below_ratio
            else tensor_active_ratio < rule.still_tensor_below_ratio
        end
        and dram_active_ratio < rule.still_dram_below_ratio
        and power_watts < stalled_below_watts as is_still
    from read
    inner join vendor_rule as rule using (vendor)
    cross join lateral (select coalesce(process_count = 0 and gpu_util_ratio < 0.01, false) as is_none) as seen_processes
)

select
    hold,
    job,
    hour_at,
    minute,
    from_at,
    until_at,
    piece_seconds,
    share,
    is_shared,
    is_before_ready,
    is_in_grace,
    is_floor,
    phase,
    first_at,
    last_at,
    read_seconds,
    interval_seconds,
    gpu_util_ratio,
    sm_active_ratio,
    core_active_ratio,
    grade_ratio,
    productive_from_ratio,
    gr_engine_active_ratio,
    tensor_active_ratio,
    dram_active_ratio,
    fb_used_bytes,
    fb_total_bytes,
    power_watts,
    sm_clock_hertz,
    pcie_bytes_per_second,
    nvlink_bytes_per_second,
    is_throttled,
    is_contradicted,
    signal,
    signal = 'gpu_util' and is_quiet and is_power_missed as is_unsure,
    coalesce(sm_active_ratio, core_active_ratio) is null and grade_ratio is not null as is_tensor_graded,
    signal <> 'power' and power_watts is not null and idle_below_watts is not null as is_power_checked,
    case
        when signal is null then null
        when is_contradicted and coalesce(gpu_util_ratio < 0.9, true) then null
        when signal = 'power' then case when is_power_low then null else 'active' end
        when not (is_quiet and is_codec_quiet and is_power_low) then 'active'
        -- A server that answers requests in a minute is not idle in it, however little of its card that takes.
        when signal = 'no_process' or not is_power_missed then case when is_serving then 'serving' else 'idle' end
    end as activity,
    coalesce(is_busy, false) as is_busy,
    coalesce(is_still, false) as is_still
from tested;
