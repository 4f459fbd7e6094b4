-- name: ledger_minute()!
-- Minute means of what each card and slice reported, from the source that said most, contradictory counters set aside.
-- Grain: one row per device and minute.
-- Reads: ledger_reading, ledger_device, ledger_card, vendor_rule
-- Writes: ledger_minute
-- Units: ratios 0 to 1, watts, seconds, bytes, hertz
-- Ignores: a profiling counter that reads exactly zero while utilization or power says the opposite: it is no measurement.
create or replace temp table ledger_minute as
with crowded as (
    select feed, minute
    from ledger_reading
    group by feed, minute
    having count(*) > 1
),

-- A reading that is alone in its minute is its own mean: with one reading a minute nothing needs to be grouped.
by_feed as (
    select
        device,
        feed,
        is_contested,
        minute,
        ts as first_at,
        ts as last_at,
        interval_seconds as read_seconds,
        interval_seconds,
        gpu_util_ratio,
        sm_active_ratio,
        gr_engine_active_ratio,
        tensor_active_ratio,
        dram_active_ratio,
        core_active_ratio,
        codec_util_ratio,
        fb_used_bytes,
        fb_total_bytes,
        power_watts,
        process_count,
        sm_clock_hertz,
        pcie_bytes_per_second,
        nvlink_bytes_per_second,
        is_throttled
    from ledger_reading
    anti join crowded using (feed, minute)
    union all
    select
        any_value(device),
        feed,
        any_value(is_contested),
        minute,
        min(ts),
        max(ts),
        count(*) * max(interval_seconds),
        max(interval_seconds),
        avg(gpu_util_ratio),
        avg(sm_active_ratio),
        avg(gr_engine_active_ratio),
        avg(tensor_active_ratio),
        avg(dram_active_ratio),
        avg(core_active_ratio),
        avg(codec_util_ratio),
        avg(fb_used_bytes),
        max(fb_total_bytes),
        avg(power_watts),
        max(process_count),
        avg(sm_clock_hertz),
        avg(pcie_bytes_per_second),
        avg(nvlink_bytes_per_second),
        bool_or(is_throttled)
    from ledger_reading
    semi join crowded using (feed, minute)
    group by feed, minute
),

-- Where two sources see a card, one counts, minute by minute: one that saw half of the minute before one that did not, then the one
-- that says more, then the one that saw more of it, then the one that reads more often; of equals the first by name.
best as (
    select *
    from by_feed
    where not is_contested
    union all
    select unnest(arg_max(by_feed, (
        (read_seconds >= 30)::integer,
        (coalesce(sm_active_ratio, core_active_ratio) is not null)::integer * 4
        + (gpu_util_ratio is not null)::integer * 2
        + (power_watts is not null)::integer,
        least(read_seconds, 60),
        -interval_seconds,
        -feed
    )))
    from by_feed
    where is_contested
    group by device, minute
),

devices as (
    select
        seen.device,
        any_value(seen.slice_id = '') as is_card,
        any_value(card.idle_below_watts) as idle_below_watts,
        any_value(card.stalled_below_watts) as stalled_below_watts,
        -- Cores that wait for others are still while the card as a whole is busy: that is no contradiction, much power is.
        coalesce(bool_or(rule.still_core_below_ratio is not null), false) as is_told_by_core
    from ledger_device as seen
    left join ledger_card as card using (gpu_uuid)
    left join vendor_rule as rule using (vendor)
    group by seen.device
),

judged as (
    select
        best.*,
        devices.is_card,
        coalesce(
            greatest(sm_active_ratio, gr_engine_active_ratio, tensor_active_ratio, core_active_ratio) = 0
            and case
                when devices.is_told_by_core and core_active_ratio is not null then power_watts >= devices.stalled_below_watts and devices.is_card
                else gpu_util_ratio >= 0.9 or (power_watts >= devices.idle_below_watts and devices.is_card)
            end,
            false
        ) as is_contradicted
    from best
    inner join devices using (device)
)

select
    device,
    minute,
    first_at,
    last_at,
    least(read_seconds, 60) as read_seconds,
    interval_seconds,
    gpu_util_ratio,
    case when not is_contradicted then sm_active_ratio end as sm_active_ratio,
    case when not is_contradicted then gr_engine_active_ratio end as gr_engine_active_ratio,
    case when not is_contradicted then tensor_active_ratio end as tensor_active_ratio,
    case when not is_contradicted then dram_active_ratio end as dram_active_ratio,
    case when not is_contradicted then core_active_ratio end as core_active_ratio,
    codec_util_ratio,
    fb_used_bytes,
    fb_total_bytes,
    case when is_card then power_watts end as power_watts,
    process_count,
    sm_clock_hertz,
    pcie_bytes_per_second,
    nvlink_bytes_per_second,
    is_throttled,
    is_contradicted
from judged;
