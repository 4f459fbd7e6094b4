-- name: gang_straggler(from_at, to_at)
-- Ranks of jobs that were slower than the rest of their gang in a quarter of an hour: by the time that they compute, by their clock, by throttling.
-- Grain: one row per job, quarter of an hour and slow card (of a rank that names no card: rank).
-- Columns: subject_kind varchar, subject_id varchar, workload_id varchar, hour_at timestamptz, from_at timestamptz, until_at timestamptz, tenant varchar, user varchar, queue varchar, kind varchar, gpu_uuid varchar, slice_id varchar, allocation_id varchar, node varchar, model varchar, state varchar, cause varchar, basis varchar, is_shared boolean, gpu_hours double, held_gpu_hours double, observed_minutes double, coverage_ratio double, gpu_util_ratio double, sm_active_ratio double, core_active_ratio double, tensor_active_ratio double, dram_active_ratio double, fb_used_ratio double, power_watts double, rank bigint, member_count bigint, compute_seconds double, median_compute_seconds double, sm_clock_hertz double, median_clock_hertz double, throttled_minutes double
-- Reads: job_step, state_span, activity_hour, reading
-- Units: GPU-hours, seconds of compute a step, hertz, minutes
-- Ignores: services, jobs of one rank, cards that were not active, and utilization: ranks that wait spin in the collective and read busy. Clocks are read closely only in hours in which a card's mean lies 2 % below the gang's or a card throttled. Throttling counts where most of the gang did not.
-- Order: none
with held as (
    select
        workload_id,
        hour_at,
        gpu_uuid,
        slice_id,
        allocation_id,
        any_value(tenant) as tenant,
        any_value("user") as "user",
        any_value(queue) as queue,
        any_value(kind) as kind,
        any_value(node) as node,
        any_value(model) as model,
        arg_max(basis, gpu_hours) as basis,
        any_value(share) as share,
        max(coverage_ratio) as coverage_ratio
    from state_span
    where
        hour_at >= :from_at::timestamptz
        and hour_at < :to_at::timestamptz
        and allocation_id <> ''
        and kind <> 'inference'
    group by all
),

whole as (
    select
        workload_id,
        any_value(tenant) as tenant,
        any_value("user") as "user",
        any_value(queue) as queue,
        any_value(kind) as kind,
        any_value(model) as model,
        max(coverage_ratio) as coverage_ratio
    from held
    group by workload_id
),

-- A step belongs to the quarter in which it ran: one that ended on the boundary to the quarter before.
steps as (
    select
        workload_id,
        rank,
        time_bucket(interval 15 minute, ts - interval 1 microsecond) as bucket_at,
        any_value(gpu_uuid) as gpu_uuid,
        avg(compute_seconds) as compute_seconds,
        min(ts - to_microseconds((coalesce(step_seconds, compute_seconds) * 1e6)::bigint)) as from_at,
        max(ts) as until_at
    from job_step
    where ts > :from_at::timestamptz and ts <= :to_at::timestamptz and compute_seconds is not null
    group by all
),

paces as (
    select
        *,
        median(compute_seconds) over of_gang as median_compute_seconds,
        count(*) over of_gang as member_count
    from steps
    window of_gang as (partition by workload_id, bucket_at)
),

slow_steps as (
    select *
    from paces
    where member_count > 1 and compute_seconds > 1.10 * median_compute_seconds + 1e-9
),

uneven as (
    select workload_id, hour_at
    from activity_hour
    where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz and active_minutes > 0
    group by workload_id, hour_at
    having
        count(*) > 1
        and (min(sm_clock_hertz) < 0.98 * median(sm_clock_hertz) or max(throttled_minutes) > 0)
),

clocks as (
    select
        span.workload_id,
        time_bucket(interval 15 minute, told.ts) as bucket_at,
        span.gpu_uuid,
        span.slice_id,
        span.allocation_id,
        avg(told.sm_clock_hertz) as sm_clock_hertz,
        sum(coalesce(told.interval_seconds, 60)) filter (where (told.throttle_reasons & 192) <> 0) / 60 as throttled_minutes,
        min(told.ts) as from_at,
        max(told.ts + to_microseconds((coalesce(told.interval_seconds, 60) * 1e6)::bigint)) as until_at
    from state_span as span
    inner join uneven on span.workload_id = uneven.workload_id and span.hour_at = uneven.hour_at
    inner join reading as told
        on
            span.gpu_uuid = told.gpu_uuid
            and span.slice_id = told.slice_id
            and told.ts >= span.from_at
            and told.ts < span.until_at
            and told.ts >= :from_at::timestamptz
            and told.ts < :to_at::timestamptz
    where
        span.hour_at >= :from_at::timestamptz
        and span.hour_at < :to_at::timestamptz
        and span.activity = 'active'
        and span.kind <> 'inference'
    group by all
),

rates as (
    select
        *,
        median(sm_clock_hertz) over of_gang as median_clock_hertz,
        median(coalesce(throttled_minutes, 0)) over of_gang as median_throttled_minutes,
        count(*) over of_gang as member_count
    from clocks
    window of_gang as (partition by workload_id, bucket_at)
),

slow_clocks as (
    select *
    from rates
    where
        member_count > 1
        and (
            sm_clock_hertz < 0.90 * median_clock_hertz - 1
            or (throttled_minutes >= 7.5 and median_throttled_minutes < 7.5)
        )
),

slow as (
    select
        coalesce(stepped.workload_id, clocked.workload_id) as workload_id,
        coalesce(stepped.bucket_at, clocked.bucket_at) as bucket_at,
        coalesce(stepped.gpu_uuid, clocked.gpu_uuid) as gpu_uuid,
        stepped.rank,
        coalesce(stepped.member_count, clocked.member_count) as member_count,
        coalesce(stepped.from_at, clocked.from_at) as from_at,
        coalesce(stepped.until_at, clocked.until_at) as until_at,
        stepped.compute_seconds,
        stepped.median_compute_seconds,
        clocked.sm_clock_hertz,
        clocked.median_clock_hertz,
        clocked.throttled_minutes,
        case
            when clocked.throttled_minutes >= 7.5 then 'throttled'
            when clocked.sm_clock_hertz is not null then 'low_clock'
            else 'slow_compute'
        end as cause
    from slow_steps as stepped
    full join slow_clocks as clocked
        on
            stepped.workload_id = clocked.workload_id
            and stepped.bucket_at = clocked.bucket_at
            and stepped.gpu_uuid = clocked.gpu_uuid
)

select
    'job' as subject_kind,
    slow.workload_id as subject_id,
    slow.workload_id,
    time_bucket(interval 1 hour, slow.bucket_at) as hour_at,
    slow.from_at,
    slow.until_at,
    coalesce(held.tenant, whole.tenant, '') as tenant,
    coalesce(held."user", whole."user", '') as "user",
    coalesce(held.queue, whole.queue, '') as queue,
    coalesce(held.kind, whole.kind, 'unknown') as kind,
    coalesce(slow.gpu_uuid, '') as gpu_uuid,
    coalesce(held.slice_id, '') as slice_id,
    coalesce(held.allocation_id, '') as allocation_id,
    coalesce(held.node, '') as node,
    coalesce(held.model, whole.model, '') as model,
    '' as state,
    slow.cause,
    case when slow.compute_seconds is not null then 'steps' else '' end
    || case when slow.compute_seconds is not null and slow.median_clock_hertz is not null then '+' else '' end
    || case when slow.median_clock_hertz is not null or slow.throttled_minutes is not null then 'clock' else '' end as basis,
    false as is_shared,
    coalesce(held.share, 1) * piece.hours as gpu_hours,
    coalesce(held.share, 1) * piece.hours as held_gpu_hours,
    piece.hours * 60 as observed_minutes,
    coalesce(held.coverage_ratio, whole.coverage_ratio, 1) as coverage_ratio,
    null::double as gpu_util_ratio,
    null::double as sm_active_ratio,
    null::double as core_active_ratio,
    null::double as tensor_active_ratio,
    null::double as dram_active_ratio,
    null::double as fb_used_ratio,
    null::double as power_watts,
    slow.rank,
    slow.member_count,
    slow.compute_seconds,
    slow.median_compute_seconds,
    slow.sm_clock_hertz,
    slow.median_clock_hertz,
    slow.throttled_minutes
from slow
cross join lateral (select epoch_us(slow.until_at - slow.from_at) / 3.6e9 as hours) as piece
left join held
    on
        slow.workload_id = held.workload_id
        and time_bucket(interval 1 hour, slow.bucket_at) = held.hour_at
        and slow.gpu_uuid = held.gpu_uuid
left join whole on slow.workload_id = whole.workload_id;
