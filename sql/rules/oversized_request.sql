-- name: oversized_request(from_at, to_at)
-- What each card of each workload used at the most, over the time that the workload held it.
-- Grain: one row per allocation of a whole card.
-- Columns: workload_id varchar, tenant varchar, user varchar, queue varchar, kind varchar, pod varchar, allocation_id varchar, gpu_uuid varchar, node varchar, model varchar, from_at timestamptz, until_at timestamptz, is_begun_before boolean, is_ended boolean, known_until_at timestamptz, subject_hours bigint, gpu_hours double, held_minutes double, observed_minutes double, active_minutes double, idle_minutes double, fb_used_bytes double, fb_total_bytes double, sm_active_ratio double, core_active_ratio double, gpu_util_ratio double, sm_peak_ratio double, core_peak_ratio double, util_peak_ratio double, coverage_ratio double, basis varchar
-- Reads: state_span, activity_hour, allocation
-- Units: bytes, ratios, minutes, GPU-hours. `fb_used_bytes` is the greatest 99th percentile of an hour, `*_peak_ratio` the greatest mean of an hour; `subject_hours` counts hours in which any card of the workload was active.
-- Ignores: slices, parts of cards and cards that several pods share: what one pod used of them is not known.
-- Order: workload_id, pod, gpu_uuid, allocation_id
with used as (
    select
        allocation_id,
        gpu_uuid,
        any_value(workload_id) as workload_id,
        sum(held_minutes) as held_minutes,
        sum(observed_minutes) as observed_minutes,
        sum(active_minutes) as active_minutes,
        sum(idle_minutes) as idle_minutes,
        max(fb_used_bytes) as fb_used_bytes,
        max(fb_total_bytes) as fb_total_bytes,
        sum(sm_active_ratio * active_minutes) / sum(active_minutes) filter (where sm_active_ratio is not null) as sm_active_ratio,
        sum(core_active_ratio * active_minutes) / sum(active_minutes) filter (where core_active_ratio is not null) as core_active_ratio,
        sum(gpu_util_ratio * active_minutes) / sum(active_minutes) filter (where gpu_util_ratio is not null) as gpu_util_ratio,
        max(sm_active_ratio) as sm_peak_ratio,
        max(core_active_ratio) as core_peak_ratio,
        max(gpu_util_ratio) as util_peak_ratio,
        sum(coverage_ratio * held_minutes) / sum(held_minutes) as coverage_ratio
    from activity_hour
    where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz
    group by all
    having not bool_or(is_shared) and min(share) > 0.999 and max(slice_id) = ''
),

hours as (
    select workload_id, count(distinct hour_at) filter (where active_minutes > 0) as subject_hours
    from activity_hour
    where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz
    group by workload_id
),

held as (
    select
        allocation_id,
        gpu_uuid,
        any_value(tenant) as tenant,
        any_value("user") as "user",
        any_value(queue) as queue,
        any_value(kind) as kind,
        any_value(pod) as pod,
        any_value(node) as node,
        any_value(model) as model,
        arg_max(basis, gpu_hours) as basis,
        min(from_at) as from_at,
        max(until_at) as until_at,
        sum(gpu_hours) as gpu_hours
    from state_span
    where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz and allocation_id <> ''
    group by all
),

known as (
    select max(until_at) as known_until_at
    from state_span
    where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz
)

select
    used.workload_id,
    held.tenant,
    held."user",
    held.queue,
    held.kind,
    held.pod,
    used.allocation_id,
    used.gpu_uuid,
    held.node,
    held.model,
    held.from_at,
    held.until_at,
    coalesce(allocation.started_at < :from_at::timestamptz, held.from_at <= :from_at::timestamptz) as is_begun_before,
    coalesce(allocation.ended_at <= known.known_until_at, held.until_at < known.known_until_at) as is_ended,
    known.known_until_at,
    hours.subject_hours,
    held.gpu_hours,
    used.held_minutes,
    used.observed_minutes,
    used.active_minutes,
    used.idle_minutes,
    used.fb_used_bytes,
    used.fb_total_bytes,
    used.sm_active_ratio,
    used.core_active_ratio,
    used.gpu_util_ratio,
    used.sm_peak_ratio,
    used.core_peak_ratio,
    used.util_peak_ratio,
    used.coverage_ratio,
    held.basis
from used
inner join held on used.allocation_id = held.allocation_id and used.gpu_uuid = held.gpu_uuid
inner join hours on used.workload_id = hours.workload_id
left join allocation on used.allocation_id = allocation.allocation_id
cross join known
order by used.workload_id, held.pod, used.gpu_uuid, used.allocation_id;
