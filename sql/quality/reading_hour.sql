-- name: reading_hour(from_at, to_at)!
-- Count what each source said of each card and slice, hour by hour, and what it saw the energy counter rise by.
-- Grain: one row per hour, source, node, gpu_uuid and slice_id.
-- Reads: reading, reading_energy, gpu_model
-- Writes: reading_hour
-- Units: seconds, joules; hours counted from 1970 in between
-- Ignores: nothing. `vendor` is that of the model that the readings name, NULL where it is not known. Where several sources read a card's energy counter, a rise is with the one that saw it first.
insert into reading_hour by name
with feeds as (
    select source, node, gpu_uuid, slice_id, row_number() over ()::integer as feed
    from reading
    where ts >= :from_at::timestamptz and ts < :to_at::timestamptz
    group by all
),

counted as (
    select
        feeds.feed,
        (epoch_us(ts) // 3600000000)::integer as hour,
        min(ts) as first_at,
        max(ts) as last_at,
        max(interval_seconds) as stated_seconds,
        max(model) as model,
        count(*) as reading_count,
        sum(invalid_count)::bigint as rejected_count,
        count(*) filter (
            where
            (quality_flags & 2) > 0
            or (greatest(sm_active_ratio, gr_engine_active_ratio, tensor_active_ratio) = 0 and gpu_util_ratio >= 0.9)
        ) as contradicted_count,
        count(gpu_util_ratio) as gpu_util_count,
        count(sm_active_ratio) as sm_active_count,
        count(core_active_ratio) as core_active_count,
        count(tensor_active_ratio) as tensor_active_count,
        count(dram_active_ratio) as dram_active_count,
        count(fb_used_bytes) as fb_used_count,
        count(power_watts) as power_count,
        count(nvlink_bytes_per_second) as nvlink_count,
        count(energy_joules) as energy_count
    from reading
    inner join feeds using (source, node, gpu_uuid, slice_id)
    where ts >= :from_at::timestamptz and ts < :to_at::timestamptz
    group by all
),

-- Only sources that do not say how often they read need the distances of their readings.
spacings as (
    select feed, hour, greatest(quantile_disc(seconds, 0.5), 1) as spacing_seconds
    from (
        select
            feeds.feed,
            (epoch_us(ts) // 3600000000)::integer as hour,
            epoch(ts - lag(ts) over (partition by feeds.feed order by ts)) as seconds
        from reading
        inner join feeds using (source, node, gpu_uuid, slice_id)
        where ts >= :from_at::timestamptz and ts < :to_at::timestamptz and interval_seconds is null
    )
    group by all
)

select
    feeds.* exclude (feed),
    counted.* exclude (feed, hour, stated_seconds, model),
    to_timestamp(counted.hour * 3600) as hour_at,
    gpu_model.vendor,
    coalesce(counted.stated_seconds, spacings.spacing_seconds, 60) as interval_seconds,
    energy.energy_joules,
    coalesce(energy.energy_reset_count, 0) as energy_reset_count,
    coalesce(energy.energy_impossible_count, 0) as energy_impossible_count
from counted
inner join feeds using (feed)
left join spacings using (feed, hour)
left join gpu_model using (model)
left join reading_energy as energy using (source, node, gpu_uuid, slice_id, hour);
