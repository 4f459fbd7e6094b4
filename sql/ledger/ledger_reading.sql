-- name: ledger_reading(from_at, to_at)!
-- The window's readings that say anything, with what the ledger needs of them.
-- Grain: one row per reading and minute that it stands for: one that is due every five minutes stands for five.
-- Reads: reading, ledger_device
-- Writes: ledger_reading
-- Units: ratios 0 to 1, watts, seconds; minute counts from 1970
-- Ignores: rows without any signal: they are not a successful reading.
create or replace temp table ledger_reading as
with telling as (
    select
        device.device,
        device.feed,
        device.is_contested,
        (epoch_us(ts) // 60000000)::integer as first_minute,
        ts,
        coalesce(reading.interval_seconds, device.interval_seconds) as interval_seconds,
        gpu_util_ratio,
        sm_active_ratio,
        gr_engine_active_ratio,
        tensor_active_ratio,
        dram_active_ratio,
        greatest(enc_util_ratio, dec_util_ratio) as codec_util_ratio,
        fb_used_bytes / nullif(fb_total_bytes, 0) as fb_used_ratio,
        power_watts,
        process_count
    from reading
    inner join ledger_device as device using (gpu_uuid, slice_id, source)
    where
        ts >= :from_at::timestamptz
        and ts < :to_at::timestamptz
        and coalesce(gpu_util_ratio, sm_active_ratio, gr_engine_active_ratio, power_watts, process_count) is not null
)

select *, first_minute as minute
from telling
where interval_seconds <= 60
union all by name
select *, unnest(range(first_minute, first_minute + ceil(interval_seconds / 60)::integer))::integer as minute
from telling
where interval_seconds > 60;
