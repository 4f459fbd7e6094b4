-- name: reading_hour(from_at, to_at)!
-- Count what each source said of each card and slice, hour by hour, and what the energy counter rose by.
-- Grain: one row per hour, source, node, gpu_uuid and slice_id.
-- Reads: reading, gpu_model
-- Writes: reading_hour
-- Units: seconds, joules
-- Ignores: a rise of more than 1.5 times what the card can draw in the time: it is counted and not added. A fall is a reset: what the counter shows after it is the rise. A reading's rise belongs to its own hour.
insert into reading_hour by name
with seen as (
    select
        *,
        date_trunc('hour', ts) as hour_at,
        greatest(sm_active_ratio, gr_engine_active_ratio, tensor_active_ratio) = 0 and gpu_util_ratio >= 0.9 as is_opposite
    from reading
    where ts >= :from_at::timestamptz and ts < :to_at::timestamptz
),

-- Only sources that do not say how often they read need the distances of their readings.
distances as (
    select
        hour_at,
        source,
        gpu_uuid,
        slice_id,
        epoch(ts - lag(ts) over (partition by source, gpu_uuid, slice_id order by ts)) as seconds
    from seen
    where interval_seconds is null
),

spacings as (
    select hour_at, source, gpu_uuid, slice_id, greatest(quantile_disc(seconds, 0.5), 1) as spacing_seconds
    from distances
    group by all
),

-- What bounds a card whose model nobody knows.
highest as (select max(power_tdp_watts) as power_tdp_watts from gpu_model),

-- The reading before the window's first is the one that its rise is counted from.
steps as (
    select
        ts,
        source,
        gpu_uuid,
        slice_id,
        model,
        power_limit_watts,
        energy_joules as now_joules,
        lag(energy_joules) over of_counter as before_joules,
        epoch(ts - lag(ts) over of_counter) as seconds
    from reading
    where
        ts >= :from_at::timestamptz - interval 1 hour
        and ts < :to_at::timestamptz
        and energy_joules is not null
    window of_counter as (partition by source, gpu_uuid, slice_id order by ts)
),

rises as (
    select
        date_trunc('hour', steps.ts) as hour_at,
        steps.source,
        steps.gpu_uuid,
        steps.slice_id,
        steps.now_joules < steps.before_joules as is_reset,
        case when is_reset then steps.now_joules else steps.now_joules - steps.before_joules end as joules,
        joules > 1.5 * steps.seconds * coalesce(gpu_model.power_tdp_watts, steps.power_limit_watts, highest.power_tdp_watts) as is_impossible
    from steps
    left join gpu_model using (model)
    cross join highest
    where steps.ts >= :from_at::timestamptz and steps.before_joules is not null
),

energy as (
    select
        hour_at,
        source,
        gpu_uuid,
        slice_id,
        coalesce(sum(joules) filter (where not is_impossible), 0) as energy_joules,
        count(*) filter (where is_reset) as energy_reset_count,
        count(*) filter (where is_impossible) as energy_impossible_count
    from rises
    group by all
),

counted as (
    select
        hour_at,
        source,
        node,
        gpu_uuid,
        slice_id,
        min(ts) as first_at,
        max(ts) as last_at,
        max(interval_seconds) as stated_seconds,
        count(*) as reading_count,
        sum(invalid_count)::bigint as rejected_count,
        count(*) filter (where (quality_flags & 2) > 0 or is_opposite) as contradicted_count,
        count(gpu_util_ratio) as gpu_util_count,
        count(sm_active_ratio) as sm_active_count,
        count(tensor_active_ratio) as tensor_active_count,
        count(dram_active_ratio) as dram_active_count,
        count(fb_used_bytes) as fb_used_count,
        count(power_watts) as power_count,
        count(nvlink_bytes_per_second) as nvlink_count,
        count(energy_joules) as energy_count
    from seen
    group by all
)

select
    counted.* exclude (stated_seconds),
    coalesce(counted.stated_seconds, spacings.spacing_seconds, 60) as interval_seconds,
    energy.energy_joules,
    coalesce(energy.energy_reset_count, 0) as energy_reset_count,
    coalesce(energy.energy_impossible_count, 0) as energy_impossible_count
from counted
left join spacings using (hour_at, source, gpu_uuid, slice_id)
left join energy using (hour_at, source, gpu_uuid, slice_id);
