-- name: throttling(from_at, to_at, min_throttled_ratio)
-- Hours in which a held card was slowed down by its own hardware for more than a part of it, beside what its peers ran at.
-- Grain: one row per card and hour.
-- Columns: hour_at timestamptz, node varchar, gpu_uuid varchar, model varchar, pool varchar, workload_id varchar, tenant varchar,
--   user varchar, queue varchar, work_kind varchar, gpu_hours double, throttled_minutes double, observed_minutes double,
--   coverage_ratio double, sm_clock_hertz double, peer_clock_hertz double, peer_count bigint, peers varchar, is_thermal boolean,
--   is_power_brake boolean
-- Reads: activity_hour, asset, workload, reading
-- Units: `throttled_minutes` of the hour with a thermal slowdown or a power brake of the hardware (bits 0x40, 0x80); clocks are
--   means over active minutes. `peers`: "job" (cards of the same model in the same job), else "pool" (same model and pool); NULL
--   where there is none. `gpu_hours` held
-- Ignores: caps by software (power limit, software thermal, application clocks): they are somebody's decision.
-- Order: gpu_uuid, hour_at
with cards as (
    select
        hour_at,
        gpu_uuid,
        arg_max(node, held_minutes) as node,
        arg_max(workload_id, held_minutes) as workload_id,
        sum(share * held_minutes) / 60 as gpu_hours,
        least(60, case when min(share) < 1 then max(throttled_minutes) else sum(throttled_minutes) end) as throttled_minutes,
        least(60, case when min(share) < 1 then max(observed_minutes) else sum(observed_minutes) end) as observed_minutes,
        avg(coverage_ratio) as coverage_ratio,
        sum(sm_clock_hertz * active_minutes) / nullif(sum(active_minutes) filter (where sm_clock_hertz is not null), 0) as sm_clock_hertz
    from activity_hour
    where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz
    group by hour_at, gpu_uuid
),

known as (
    select gpu_uuid, arg_max(model, from_at) as model, arg_max(pool, from_at) as pool
    from asset
    group by gpu_uuid
),

placed as (
    select cards.*, coalesce(known.model, '') as model, coalesce(known.pool, '') as pool
    from cards
    left join known using (gpu_uuid)
),

slowed as (
    select *
    from placed
    where throttled_minutes > :min_throttled_ratio::double * 60
),

job_peers as (
    select slowed.hour_at, slowed.gpu_uuid, median(peer.sm_clock_hertz) as clock, count(*) as peer_count
    from slowed
    inner join placed as peer
        on
            slowed.hour_at = peer.hour_at
            and slowed.workload_id = peer.workload_id
            and slowed.model = peer.model
            and slowed.gpu_uuid <> peer.gpu_uuid
            and peer.sm_clock_hertz is not null
    group by slowed.hour_at, slowed.gpu_uuid
),

pool_peers as (
    select slowed.hour_at, slowed.gpu_uuid, median(peer.sm_clock_hertz) as clock, count(*) as peer_count
    from slowed
    inner join placed as peer
        on
            slowed.hour_at = peer.hour_at
            and slowed.pool = peer.pool
            and slowed.model = peer.model
            and slowed.gpu_uuid <> peer.gpu_uuid
            and peer.sm_clock_hertz is not null
    group by slowed.hour_at, slowed.gpu_uuid
),

bits as (
    select
        slowed.hour_at,
        slowed.gpu_uuid,
        bool_or(reading.throttle_reasons & 64 <> 0) as is_thermal,
        bool_or(reading.throttle_reasons & 128 <> 0) as is_power_brake
    from slowed
    inner join reading
        on
            slowed.gpu_uuid = reading.gpu_uuid
            and reading.ts >= slowed.hour_at
            and reading.ts < slowed.hour_at + interval 1 hour
            and reading.ts >= :from_at::timestamptz
            and reading.throttle_reasons is not null
    group by slowed.hour_at, slowed.gpu_uuid
)

select
    slowed.hour_at,
    slowed.node,
    slowed.gpu_uuid,
    slowed.model,
    slowed.pool,
    slowed.workload_id,
    coalesce(workload.tenant, '') as tenant,
    coalesce(workload."user", '') as "user",
    coalesce(workload.queue, '') as queue,
    coalesce(workload.kind, 'unknown') as work_kind,
    slowed.gpu_hours,
    slowed.throttled_minutes,
    slowed.observed_minutes,
    slowed.coverage_ratio,
    slowed.sm_clock_hertz,
    coalesce(job_peers.clock, pool_peers.clock) as peer_clock_hertz,
    coalesce(job_peers.peer_count, pool_peers.peer_count, 0) as peer_count,
    case when job_peers.clock is not null then 'job' when pool_peers.clock is not null then 'pool' end as peers,
    coalesce(bits.is_thermal, false) as is_thermal,
    coalesce(bits.is_power_brake, false) as is_power_brake
from slowed
left join job_peers using (hour_at, gpu_uuid)
left join pool_peers using (hour_at, gpu_uuid)
left join bits using (hour_at, gpu_uuid)
left join workload on slowed.workload_id = workload.workload_id
order by slowed.gpu_uuid, slowed.hour_at;
