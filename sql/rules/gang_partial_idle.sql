-- name: gang_partial_idle(from_at, to_at)
-- Idle shares of jobs (or of replicas with several cards) while others of them were not idle: what the ledger calls idle, idle_allocation does not claim, and would not claim were all seen.
-- Grain: one row per piece of a ledger span.
-- Columns: subject_kind varchar, subject_id varchar, workload_id varchar, hour_at timestamptz, from_at timestamptz, until_at timestamptz, tenant varchar, user varchar, queue varchar, kind varchar, gpu_uuid varchar, slice_id varchar, allocation_id varchar, node varchar, model varchar, state varchar, cause varchar, basis varchar, is_shared boolean, gpu_hours double, held_gpu_hours double, observed_minutes double, coverage_ratio double, gpu_util_ratio double, sm_active_ratio double, core_active_ratio double, tensor_active_ratio double, dram_active_ratio double, fb_used_ratio double, power_watts double
-- Reads: state_span
-- Units: GPU-hours, ratios, watts
-- Ignores: stretches of at least 30 min in which all shares were idle (idle_allocation) or, as far as they were seen, may have been: nobody knows whose finding those are. Shares of which nothing is known. `cause` is idle_ranks where another share of the job was seen active in the piece's hour, others_quiet where none was.
-- Order: none
with held as (
    select
        *,
        case when kind = 'inference' then 'pod' else 'job' end as subject_kind,
        case when kind = 'inference' then pod else workload_id end as subject_id,
        coalesce(activity = 'idle' and cause = '' and state in ('alloc_idle', 'alloc_low', 'alloc_unknown'), false) as is_idle,
        activity is null as is_unseen
    from state_span
    where
        hour_at >= :from_at::timestamptz - interval 1 hour
        and hour_at < :to_at::timestamptz + interval 1 hour
        and allocation_id <> ''
),

-- Each span opens and closes; running sums tell at every instant how many shares were held, how many idle and how many unseen.
events as (
    select
        subject_kind,
        subject_id,
        workload_id,
        from_at as changed_at,
        1 as held,
        is_idle::integer as idle,
        is_unseen::integer as unseen,
        (state = 'alloc_idle')::integer as judged
    from held
    union all
    select
        subject_kind,
        subject_id,
        workload_id,
        until_at,
        -1,
        -(is_idle::integer),
        -(is_unseen::integer),
        -((state = 'alloc_idle')::integer)
    from held
),

levels as (
    select
        subject_kind,
        subject_id,
        workload_id,
        changed_at,
        sum(sum(held)) over of_subject as held,
        sum(sum(idle)) over of_subject as idle,
        sum(sum(unseen)) over of_subject as unseen,
        sum(sum(judged)) over of_subject as judged,
        lead(changed_at) over of_subject as until_at
    from events
    group by subject_kind, subject_id, workload_id, changed_at
    window of_subject as (partition by subject_kind, workload_id, subject_id order by changed_at)
),

-- joint: all were seen idle; unsure: they may have been; partial: one at least was seen not to be.
kinds as (
    select
        *,
        case
            when idle = held then 'joint'
            when idle + unseen = held and idle > 0 then 'unsure'
            else 'partial'
        end as kind
    from levels
    where held > 0
),

marked as (
    select
        *,
        ((lag(until_at) over of_subject is distinct from changed_at) or lag(kind) over of_subject <> kind)::integer as is_new_run
    from kinds
    window of_subject as (partition by subject_kind, workload_id, subject_id order by changed_at)
),

numbered as (
    select
        *,
        sum(is_new_run) over (partition by subject_kind, workload_id, subject_id order by changed_at rows unbounded preceding) as run
    from marked
),

-- The same test as in idle_allocation: what it claims is left to it.
runs as (
    select
        subject_kind,
        subject_id,
        workload_id,
        any_value(kind) as kind,
        min(changed_at) as from_at,
        max(until_at) as until_at,
        any_value(kind) = 'joint' and max(judged) > 0 and (epoch(max(until_at) - min(changed_at)) >= 1800 or max(held) = 1) as is_claimed
    from numbered
    group by subject_kind, subject_id, workload_id, run
),

-- Neighbours in which all may have been idle are one block: were its unseen shares idle, it would be idle_allocation's.
bordered as (
    select
        *,
        ((lag(until_at) over of_subject is distinct from from_at)
        or (lag(kind) over of_subject = 'partial') or kind = 'partial')::integer as is_new_block
    from runs
    window of_subject as (partition by subject_kind, workload_id, subject_id order by from_at)
),

blocks as (
    select
        *,
        bool_or(kind = 'unsure') over of_block and epoch(max(until_at) over of_block - min(from_at) over of_block) >= 1800 as is_either
    from (
        select
            *,
            sum(is_new_block) over (partition by subject_kind, workload_id, subject_id order by from_at rows unbounded preceding) as block
        from bordered
    )
    window of_block as (partition by subject_kind, workload_id, subject_id, block)
),

cut as (
    select
        *,
        case when (lag(until_at) over of_subject is distinct from from_at) then 1 else 0 end as is_new_rest
    from blocks
    where not is_claimed and not is_either
    window of_subject as (partition by subject_kind, workload_id, subject_id order by from_at)
),

rest as (
    select subject_kind, subject_id, workload_id, min(from_at) as from_at, max(until_at) as until_at
    from (
        select
            *,
            sum(is_new_rest) over (partition by subject_kind, workload_id, subject_id order by from_at rows unbounded preceding) as stretch
        from cut
    )
    group by subject_kind, subject_id, workload_id, stretch
),

seen as (
    select
        rest.subject_kind,
        rest.subject_id,
        rest.workload_id,
        rest.from_at,
        held.hour_at,
        coalesce(bool_or(held.activity = 'active'), false) as is_any_active
    from rest
    inner join held
        on
            rest.subject_kind = held.subject_kind
            and rest.subject_id = held.subject_id
            and rest.workload_id = held.workload_id
            and held.from_at < rest.until_at
            and held.until_at > rest.from_at
    group by all
)

select
    held.subject_kind,
    held.subject_id,
    held.workload_id,
    held.hour_at,
    greatest(held.from_at, rest.from_at) as from_at,
    least(held.until_at, rest.until_at) as until_at,
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
    case when seen.is_any_active then 'idle_ranks' else 'others_quiet' end as cause,
    held.basis,
    contains(held.basis, 'shared_card') as is_shared,
    held.share * piece.hours * held.observed_minutes / (epoch_us(held.until_at - held.from_at) / 6e7) as gpu_hours,
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
from rest
inner join held
    on
        rest.subject_kind = held.subject_kind
        and rest.subject_id = held.subject_id
        and rest.workload_id = held.workload_id
        and held.from_at < rest.until_at
        and held.until_at > rest.from_at
        and held.hour_at >= :from_at::timestamptz
        and held.hour_at < :to_at::timestamptz
        and held.state = 'alloc_idle'
inner join seen
    on
        rest.subject_kind = seen.subject_kind
        and rest.subject_id = seen.subject_id
        and rest.workload_id = seen.workload_id
        and rest.from_at = seen.from_at
        and held.hour_at = seen.hour_at
cross join lateral (
    select epoch_us(least(held.until_at, rest.until_at) - greatest(held.from_at, rest.from_at)) / 3.6e9 as hours
) as piece;
