-- name: idle_allocation(from_at, to_at)
-- What idle jobs (or replicas of services) held in stretches of at least 30 min in which every share of them was idle.
-- Grain: one row per piece of a ledger span.
-- Columns: subject_kind varchar, subject_id varchar, workload_id varchar, hour_at timestamptz, from_at timestamptz, until_at timestamptz, tenant varchar, user varchar, queue varchar, kind varchar, gpu_uuid varchar, slice_id varchar, allocation_id varchar, node varchar, model varchar, state varchar, cause varchar, basis varchar, is_shared boolean, gpu_hours double, held_gpu_hours double, observed_minutes double, coverage_ratio double, gpu_util_ratio double, sm_active_ratio double, core_active_ratio double, tensor_active_ratio double, dram_active_ratio double, fb_used_ratio double, power_watts double
-- Reads: state_span
-- Units: GPU-hours, ratios, watts
-- Ignores: minutes before ready + grace, replicas of a declared floor, declared quiet phases, hours with less than half of the readings, and stretches under 30 min. One active rank makes the job's minute active. What holds one share is idle wherever the ledger says so, though an hour that was hardly read cuts what is seen of its stretch. Of a stretch only what the ledger calls idle is claimed: a bridged silence is held, and counts nothing.
-- Order: none
with held as (
    select
        *,
        case when kind = 'inference' then 'pod' else 'job' end as subject_kind,
        case when kind = 'inference' then pod else workload_id end as subject_id,
        coalesce(activity = 'idle' and cause = '' and state in ('alloc_idle', 'alloc_low', 'alloc_unknown'), false) as is_idle
    from state_span
    where
        hour_at >= :from_at::timestamptz - interval 1 hour
        and hour_at < :to_at::timestamptz + interval 1 hour
        and allocation_id <> ''
),

-- Each span opens and closes; running sums tell at every instant how many shares were held and how many idle.
events as (
    select
        subject_kind,
        subject_id,
        workload_id,
        from_at as changed_at,
        1 as held,
        is_idle::integer as idle,
        (state = 'alloc_idle')::integer as judged
    from held
    union all
    select subject_kind, subject_id, workload_id, until_at, -1, -(is_idle::integer), -((state = 'alloc_idle')::integer) from held
),

levels as (
    select
        subject_kind,
        subject_id,
        workload_id,
        changed_at,
        sum(sum(held)) over of_subject as held,
        sum(sum(idle)) over of_subject as idle,
        sum(sum(judged)) over of_subject as judged,
        lead(changed_at) over of_subject as until_at
    from events
    group by subject_kind, subject_id, workload_id, changed_at
    window of_subject as (partition by subject_kind, workload_id, subject_id order by changed_at)
),

marked as (
    select
        *,
        case when (lag(until_at) over of_subject is distinct from changed_at) then 1 else 0 end as is_new_run
    from levels
    where held > 0 and idle = held
    window of_subject as (partition by subject_kind, workload_id, subject_id order by changed_at)
),

numbered as (
    select
        *,
        sum(is_new_run) over (partition by subject_kind, workload_id, subject_id order by changed_at rows unbounded preceding) as run
    from marked
),

stretches as (
    select subject_kind, subject_id, workload_id, run, min(changed_at) as window_start, max(until_at) as window_end
    from numbered
    group by all
    having max(judged) > 0 and (epoch(max(until_at) - min(changed_at)) >= 1800 or max(held) = 1)
)

select
    held.subject_kind,
    held.subject_id,
    held.workload_id,
    held.hour_at,
    greatest(held.from_at, stretch.window_start) as from_at,
    least(held.until_at, stretch.window_end) as until_at,
    held.tenant,
    held."user",
    held.queue,
    held.kind,
    held.gpu_uuid,
    held.slice_id,
    held.allocation_id,
    held.node,
    held.model,
    held.state,
    '' as cause,
    held.basis,
    contains(held.basis, 'shared_card') as is_shared,
    case
        when held.state = 'alloc_idle'
            then held.share * piece.hours * held.observed_minutes / (epoch_us(held.until_at - held.from_at) / 6e7)
        else 0
    end as gpu_hours,
    held.share * piece.hours as held_gpu_hours,
    piece.hours * 60 * held.observed_minutes / (epoch_us(held.until_at - held.from_at) / 6e7) as observed_minutes,
    held.coverage_ratio,
    held.gpu_util_ratio,
    held.sm_active_ratio,
    null::double as core_active_ratio,
    null::double as tensor_active_ratio,
    null::double as dram_active_ratio,
    held.fb_used_ratio,
    held.power_watts
from stretches as stretch
inner join held
    on
        stretch.subject_kind = held.subject_kind
        and stretch.subject_id = held.subject_id
        and stretch.workload_id = held.workload_id
        and held.from_at < stretch.window_end
        and held.until_at > stretch.window_start
        and held.hour_at >= :from_at::timestamptz
        and held.hour_at < :to_at::timestamptz
        and held.state in ('alloc_idle', 'alloc_unknown')
cross join lateral (
    select epoch_us(least(held.until_at, stretch.window_end) - greatest(held.from_at, stretch.window_start)) / 3.6e9 as hours
) as piece;
