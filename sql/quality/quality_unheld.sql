-- name: quality_unheld(from_at, to_at)!
-- Write where cards worked that nobody was known to hold: in the ledger these hours are free.
-- Grain: one row per hour and node.
-- Reads: state_span, reading, reading_hour, gpu_model
-- Writes: quality
-- Units: minutes of whole cards, and cards
-- Ignores: cards that are held in part (what works may be the holder), spare and unavailable ones, and cards that worked for less than five such minutes of the hour. A minute works where a reading of it says so: utilization, SM or graphics engine activity of 5 % or more, or power above the model's idle band.
insert into quality by name
with unheld as (
    select hour_at, from_at, until_at, gpu_uuid, node
    from state_span
    where
        hour_at >= :from_at::timestamptz
        and hour_at < :to_at::timestamptz
        and state in ('free_usable', 'free_stranded')
        and share > 0.999
),

-- A reading stands for the time up to the next one that is due, for a minute at least.
working as (
    select distinct
        reading.gpu_uuid,
        unnest(range(
            epoch_us(reading.ts) // 60000000,
            epoch_us(reading.ts) // 60000000 + greatest(1, ceil(coalesce(reading.interval_seconds, counted.interval_seconds, 60) / 60)::bigint)
        )) as minute
    from reading
    semi join unheld on reading.gpu_uuid = unheld.gpu_uuid
    left join reading_hour as counted
        on
            reading.source = counted.source
            and reading.node = counted.node
            and reading.gpu_uuid = counted.gpu_uuid
            and reading.slice_id = counted.slice_id
            and date_trunc('hour', reading.ts) = counted.hour_at
    left join gpu_model on reading.model = gpu_model.model
    where
        reading.ts >= :from_at::timestamptz
        and reading.ts < :to_at::timestamptz
        and (
            greatest(reading.gpu_util_ratio, reading.sm_active_ratio, reading.gr_engine_active_ratio) >= 0.05
            or (
                reading.slice_id = ''
                and reading.power_watts > gpu_model.power_idle_watts + 0.15 * (gpu_model.power_tdp_watts - gpu_model.power_idle_watts)
            )
        )
),

worked as (
    select
        unheld.hour_at,
        unheld.node,
        unheld.gpu_uuid,
        sum(epoch(
            least(unheld.until_at, to_timestamp(working.minute * 60) + interval 1 minute)
            - greatest(unheld.from_at, to_timestamp(working.minute * 60))
        )) / 60 as minutes
    from unheld
    inner join working
        on
            unheld.gpu_uuid = working.gpu_uuid
            and epoch_us(unheld.hour_at) // 3600000000 = working.minute // 60
            and unheld.from_at < to_timestamp(working.minute * 60) + interval 1 minute
            and unheld.until_at > to_timestamp(working.minute * 60)
    group by unheld.hour_at, unheld.node, unheld.gpu_uuid
)

select
    hour_at,
    'ledger' as source,
    'node' as subject_kind,
    node as subject,
    'active_unheld' as kind,
    '' as detail,
    round(sum(minutes))::bigint as count,
    count(*)::double as value
from worked
where minutes >= 5
group by hour_at, node;
