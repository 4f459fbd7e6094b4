-- name: ledger_minute(from_at, to_at)!
-- Minute means of what each card and slice reported, from the source that said most, contradictory counters set aside.
-- Grain: one row per gpu_uuid, slice_id and minute.
-- Reads: reading, ledger_card
-- Writes: ledger_minute
-- Units: ratios 0 to 1, watts, seconds
-- Ignores: rows without any signal: they are not a successful reading. A profiling counter that reads exactly zero while utilization or power says the opposite is not a measurement.
create or replace temp table ledger_minute as
with by_source as (
    select
        gpu_uuid,
        slice_id,
        epoch_us(ts) // 60000000 as minute,
        source,
        min(ts) as first_at,
        max(ts) as last_at,
        count(*) * max(interval_seconds) as read_seconds,
        max(interval_seconds) as interval_seconds,
        avg(gpu_util_ratio) as gpu_util_ratio,
        avg(sm_active_ratio) as sm_active_ratio,
        avg(gr_engine_active_ratio) as gr_engine_active_ratio,
        avg(tensor_active_ratio) as tensor_active_ratio,
        avg(dram_active_ratio) as dram_active_ratio,
        greatest(avg(enc_util_ratio), avg(dec_util_ratio)) as codec_util_ratio,
        avg(fb_used_bytes / nullif(fb_total_bytes, 0)) as fb_used_ratio,
        avg(power_watts) as power_watts,
        max(process_count) as process_count
    from reading
    where
        ts >= :from_at::timestamptz
        and ts < :to_at::timestamptz
        and coalesce(gpu_util_ratio, sm_active_ratio, gr_engine_active_ratio, power_watts, process_count) is not null
    group by all
),

contested as (
    select gpu_uuid, slice_id
    from by_source
    group by gpu_uuid, slice_id
    having min(source) <> max(source)
),

-- Most cards have one source; where two see a card, the one that says more of it counts, minute by minute.
best as (
    select by_source.*
    from by_source
    anti join contested using (gpu_uuid, slice_id)
    union all
    select unnest(arg_max(by_source, (
        (sm_active_ratio is not null)::integer * 4
        + (gpu_util_ratio is not null)::integer * 2
        + (power_watts is not null)::integer
    ) || source))
    from by_source
    semi join contested using (gpu_uuid, slice_id)
    group by gpu_uuid, slice_id, minute
),

cards as (
    select gpu_uuid, any_value(idle_below_watts) as idle_below_watts, any_value(stalled_below_watts) as stalled_below_watts
    from ledger_card
    group by gpu_uuid
),

judged as (
    select
        best.*,
        cards.idle_below_watts,
        cards.stalled_below_watts,
        coalesce(
            greatest(sm_active_ratio, gr_engine_active_ratio, tensor_active_ratio) = 0
            and (gpu_util_ratio >= 0.9 or (power_watts >= idle_below_watts and slice_id = '')),
            false
        ) as is_contradicted
    from best
    left join cards using (gpu_uuid)
)

select
    gpu_uuid,
    slice_id,
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
    codec_util_ratio,
    fb_used_ratio,
    case when slice_id = '' then power_watts end as power_watts,
    process_count,
    is_contradicted,
    idle_below_watts,
    stalled_below_watts
from judged;
