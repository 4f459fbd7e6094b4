-- name: basis_reading(from_at, to_at, without)!
-- The window's readings as if the counters in `without` were switched off, in a table of this connection's own that lies over the stored one.
-- Grain: one row per reading.
-- Reads: reading
-- Writes: reading
-- Units: those of reading
-- Ignores: columns that the ledger does not read.
create or replace temp table reading as
select
    ts,
    gpu_uuid,
    slice_id,
    source,
    interval_seconds,
    gpu_util_ratio,
    enc_util_ratio,
    dec_util_ratio,
    fb_used_bytes,
    fb_total_bytes,
    process_count,
    sm_clock_hertz,
    pcie_tx_bytes_per_second,
    pcie_rx_bytes_per_second,
    nvlink_bytes_per_second,
    throttle_reasons,
    case when not list_contains(:without::varchar[], 'sm_active_ratio') then sm_active_ratio end as sm_active_ratio,
    case when not list_contains(:without::varchar[], 'gr_engine_active_ratio') then gr_engine_active_ratio end as gr_engine_active_ratio,
    case when not list_contains(:without::varchar[], 'tensor_active_ratio') then tensor_active_ratio end as tensor_active_ratio,
    case when not list_contains(:without::varchar[], 'dram_active_ratio') then dram_active_ratio end as dram_active_ratio,
    case when not list_contains(:without::varchar[], 'core_active_ratio') then core_active_ratio end as core_active_ratio,
    case when not list_contains(:without::varchar[], 'power_watts') then power_watts end as power_watts
from reading
where ts >= :from_at::timestamptz and ts < :to_at::timestamptz;
