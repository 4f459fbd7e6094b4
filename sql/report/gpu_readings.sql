-- name: gpu_readings(gpu_uuid, from_at, to_at, bucket_seconds)
-- One card's readings, thinned to buckets that keep the minimum and the maximum.
-- Grain: one row per bucket and slice.
-- Columns: bucket_at timestamptz, slice_id varchar, gpu_util_min double, gpu_util_max double, gpu_util_mean double, sm_active_min double, sm_active_max double, sm_active_mean double, power_watts_mean double, fb_used_ratio_mean double
-- Reads: reading
-- Units: ratios, watts
-- Ignores: nothing.
-- Order: bucket_at, slice_id
select
    make_timestamptz((epoch_us(ts) // (:bucket_seconds::bigint * 1000000)) * :bucket_seconds::bigint * 1000000) as bucket_at,
    slice_id,
    min(gpu_util_ratio) as gpu_util_min,
    max(gpu_util_ratio) as gpu_util_max,
    avg(gpu_util_ratio) as gpu_util_mean,
    min(sm_active_ratio) as sm_active_min,
    max(sm_active_ratio) as sm_active_max,
    avg(sm_active_ratio) as sm_active_mean,
    avg(power_watts) as power_watts_mean,
    avg(fb_used_bytes / nullif(fb_total_bytes, 0)) as fb_used_ratio_mean
from reading
where
    gpu_uuid = :gpu_uuid
    and ts >= :from_at::timestamptz
    and ts < :to_at::timestamptz
group by bucket_at, slice_id
order by bucket_at, slice_id;
