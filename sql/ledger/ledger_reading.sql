-- name: ledger_reading(from_at, to_at)!
-- The window's readings that say anything, with what the ledger needs of them.
-- Grain: one row per reading and minute that it stands for: one that is due every five minutes stands for five.
-- Reads: reading, ledger_device
-- Writes: ledger_reading
-- Units: ratios 0 to 1, watts, seconds, bytes, hertz; minute counts from 1970
-- Ignores: rows without any signal: they are not a successful reading. Causes of a lower clock other than heat and power brakes of the hardware (bits 0x40 and 0x80): a power cap is policy. A source that does not say how often it reads: in each hour nine of ten readings are at most one interval after the one before (the larger half of the distances where there are fewer than ten); at most 300 s, since who does not say it is a Prometheus, and 60 s where nothing tells.
create or replace temp table ledger_reading as
with distances as (
    select device.feed, reading.ts, epoch(ts - lag(ts) over (partition by device.feed order by ts)) as seconds
    from reading
    inner join ledger_device as device using (gpu_uuid, slice_id, source)
    where device.is_silent and ts >= :from_at::timestamptz and ts < :to_at::timestamptz
),

-- Two exporters of one card, or a pair of senders, are one feed when nothing tells them apart: short and long distances alternate.
spacings as (
    select
        feed,
        epoch_us(ts) // 3600000000 as hour,
        least(case when count(seconds) >= 10 then quantile_disc(seconds, 0.9) else quantile_disc(seconds, 0.5) end, 300) as interval_seconds
    from distances
    where seconds > 0
    group by all
),

telling as (
    select
        device.device,
        device.feed,
        device.is_contested,
        (epoch_us(ts) // 60000000)::integer as first_minute,
        ts,
        coalesce(reading.interval_seconds, spacings.interval_seconds, 60) as interval_seconds,
        gpu_util_ratio,
        sm_active_ratio,
        gr_engine_active_ratio,
        tensor_active_ratio,
        dram_active_ratio,
        greatest(enc_util_ratio, dec_util_ratio) as codec_util_ratio,
        core_active_ratio,
        fb_used_bytes,
        fb_total_bytes,
        power_watts,
        process_count,
        sm_clock_hertz,
        -- Of two directions one may be unknown.
        coalesce(pcie_tx_bytes_per_second + pcie_rx_bytes_per_second, pcie_tx_bytes_per_second, pcie_rx_bytes_per_second) as pcie_bytes_per_second,
        nvlink_bytes_per_second,
        throttle_reasons & 192 > 0 as is_throttled
    from reading
    inner join ledger_device as device using (gpu_uuid, slice_id, source)
    left join spacings on device.feed = spacings.feed and epoch_us(reading.ts) // 3600000000 = spacings.hour
    where
        ts >= :from_at::timestamptz
        and ts < :to_at::timestamptz
        and coalesce(gpu_util_ratio, sm_active_ratio, gr_engine_active_ratio, core_active_ratio, power_watts, process_count) is not null
)

select *, first_minute as minute
from telling
where interval_seconds <= 60
union all by name
select *, unnest(range(first_minute, first_minute + ceil(interval_seconds / 60)::integer))::integer as minute
from telling
where interval_seconds > 60;
