-- name: idle_allocation(from_at, to_at)
-- Stretches of at least 30 min in which every share of a job (or of one replica of a service) was idle.
-- Grain: one row per job or replica and stretch.
-- Columns: subject_kind varchar, subject_id varchar, workload_id varchar, tenant varchar, user varchar, kind varchar, window_start timestamptz, window_end timestamptz, gpu_count double, gpu_hours double, held_gpu_hours double, observed_minutes double, coverage_ratio double, gpu_util_ratio double, sm_active_ratio double, fb_used_ratio double, power_watts double, basis varchar, is_shared boolean, is_never_used boolean, is_until_end boolean
-- Reads: state_span
-- Units: GPU-hours, ratios, watts
-- Ignores: minutes before ready + grace, replicas of a declared floor, hours with less than half of the readings, and stretches under 30 min. One active rank makes the job's minute active.
-- Order: gpu_hours, largest first
with held as (
    select
        *,
        case when kind = 'inference' then 'pod' else 'job' end as subject_kind,
        case when kind = 'inference' then pod else workload_id end as subject_id,
        coalesce(activity = 'idle' and state in ('alloc_idle', 'alloc_low', 'alloc_unknown'), false) as is_idle,
        row_number() over () as span
    from state_span
    where
        hour_at >= :from_at::timestamptz
        and hour_at < :to_at::timestamptz
        and allocation_id <> ''
),

-- Each span opens and closes; running sums tell at every instant how many shares were held and how many idle.
events as (
    select subject_kind, subject_id, workload_id, from_at as changed_at, 1 as held, is_idle::integer as idle from held
    union all
    select subject_kind, subject_id, workload_id, until_at, -1, -(is_idle::integer) from held
),

levels as (
    select
        subject_kind,
        subject_id,
        workload_id,
        changed_at,
        sum(sum(held)) over of_subject as held,
        sum(sum(idle)) over of_subject as idle,
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
    having epoch(max(until_at) - min(changed_at)) >= 1800
),

lives as (
    select
        subject_kind,
        subject_id,
        workload_id,
        max(until_at) as last_at,
        min(from_at) filter (where activity = 'active') as first_active_at
    from held
    group by all
),

claimed as (
    select
        stretch.*,
        held.gpu_uuid,
        held.tenant,
        held."user",
        held.kind,
        held.share,
        held.basis,
        held.fb_used_ratio,
        held.gpu_util_ratio,
        held.sm_active_ratio,
        held.power_watts,
        held.coverage_ratio,
        epoch_us(least(held.until_at, stretch.window_end) - greatest(held.from_at, stretch.window_start)) / 3.6e9 as overlap_hours,
        held.observed_minutes / (epoch_us(held.until_at - held.from_at) / 6e7) as observed_ratio
    from stretches as stretch
    inner join held
        on
            stretch.subject_kind = held.subject_kind
            and stretch.subject_id = held.subject_id
            and stretch.workload_id = held.workload_id
            and held.from_at < stretch.window_end
            and held.until_at > stretch.window_start
)

select
    claimed.subject_kind,
    claimed.subject_id,
    claimed.workload_id,
    any_value(claimed.tenant) as tenant,
    any_value(claimed."user") as "user",
    any_value(claimed.kind) as kind,
    claimed.window_start,
    claimed.window_end,
    sum(claimed.share * claimed.overlap_hours) / (epoch_us(claimed.window_end - claimed.window_start) / 3.6e9) as gpu_count,
    sum(claimed.share * claimed.overlap_hours * claimed.observed_ratio) as gpu_hours,
    sum(claimed.share * claimed.overlap_hours) as held_gpu_hours,
    sum(claimed.overlap_hours * claimed.observed_ratio) * 60 as observed_minutes,
    sum(claimed.coverage_ratio * claimed.overlap_hours) / sum(claimed.overlap_hours) as coverage_ratio,
    sum(claimed.gpu_util_ratio * claimed.overlap_hours) / sum(claimed.overlap_hours) filter (where claimed.gpu_util_ratio is not null) as gpu_util_ratio,
    sum(claimed.sm_active_ratio * claimed.overlap_hours) / sum(claimed.overlap_hours) filter (where claimed.sm_active_ratio is not null) as sm_active_ratio,
    sum(claimed.fb_used_ratio * claimed.overlap_hours) / sum(claimed.overlap_hours) filter (where claimed.fb_used_ratio is not null) as fb_used_ratio,
    sum(claimed.power_watts * claimed.overlap_hours) / sum(claimed.overlap_hours) filter (where claimed.power_watts is not null) as power_watts,
    arg_max(claimed.basis, claimed.overlap_hours) as basis,
    bool_or(contains(claimed.basis, 'shared_card')) as is_shared,
    any_value(coalesce(lives.first_active_at > claimed.window_start, true)) as is_never_used,
    any_value(lives.last_at <= claimed.window_end) as is_until_end
from claimed
inner join lives
    on
        claimed.subject_kind = lives.subject_kind
        and claimed.subject_id = lives.subject_id
        and claimed.workload_id = lives.workload_id
group by claimed.subject_kind, claimed.subject_id, claimed.workload_id, claimed.run, claimed.window_start, claimed.window_end
order by gpu_hours desc, claimed.subject_id, claimed.window_start;
