-- name: state_span(from_at, to_at)!
-- Append the window's ledger: every share of every card in exactly one state, neighbouring minutes of one state joined.
-- Grain: one row per card, slice, allocation and run of one state within an hour.
-- Reads: ledger_slot, ledger_judged, ledger_free, ledger_hold, ledger_card
-- Writes: state_span
-- Units: GPU-hours = share x length; ratios and watts are means over the observed minutes
-- Ignores: pieces outside the window, which were only context.
insert into state_span by name
with bounded as (
    select
        *,
        case
            when
                from_at is distinct from lag(until_at) over of_hour
                or state is distinct from lag(state) over of_hour
                or activity is distinct from lag(activity) over of_hour
                or basis is distinct from lag(basis) over of_hour
                or share is distinct from lag(share) over of_hour
                then 1
            else 0
        end as is_new_run
    from ledger_judged
    where from_at >= :from_at::timestamptz and from_at < :to_at::timestamptz
    window of_hour as (partition by hold, hour_at order by from_at)
),

numbered as (
    select *, sum(is_new_run) over (partition by hold order by from_at rows unbounded preceding) as run
    from bounded
),

runs as (
    select
        hold,
        any_value(hour_at) as hour_at,
        min(from_at) as from_at,
        max(until_at) as until_at,
        any_value(state) as state,
        any_value(activity) as activity,
        any_value(basis) as basis,
        any_value(share) as share,
        any_value(share) * sum(piece_seconds) / 3600 as gpu_hours,
        coalesce(sum(piece_seconds) filter (where read_seconds > 0), 0) / 60 as observed_minutes,
        sum(gpu_util_ratio * piece_seconds) / sum(piece_seconds) filter (where gpu_util_ratio is not null) as gpu_util_ratio,
        sum(sm_active_ratio * piece_seconds) / sum(piece_seconds) filter (where sm_active_ratio is not null) as sm_active_ratio,
        sum(fb_used_ratio * piece_seconds) / sum(piece_seconds) filter (where fb_used_ratio is not null) as fb_used_ratio,
        sum(power_watts * piece_seconds) / sum(piece_seconds) filter (where power_watts is not null) as power_watts,
        any_value(coverage_ratio) as coverage_ratio
    from numbered
    group by hold, run
),

held as (
    select
        runs.* exclude (hold),
        hold.gpu_uuid,
        hold.slice_id,
        hold.allocation_id,
        hold.workload_id,
        hold.pod,
        hold.tenant,
        hold."user",
        hold.queue,
        hold.stage,
        hold.kind,
        '' as cause
    from runs
    inner join ledger_hold as hold using (hold)
),

unheld as (
    select
        hour_at,
        from_at,
        until_at,
        gpu_uuid,
        state,
        cause,
        case
            when state = 'unavailable' then 'condition'
            when state = 'reserved_spare' then 'pool'
            else 'allocation'
        end as basis,
        share,
        share * epoch_us(until_at - from_at) / 3.6e9 as gpu_hours,
        0 as observed_minutes,
        '' as slice_id,
        '' as allocation_id,
        '' as workload_id,
        '' as pod,
        '' as tenant,
        '' as "user",
        '' as queue,
        '' as stage,
        '' as kind
    from ledger_free
    where from_at >= :from_at::timestamptz and from_at < :to_at::timestamptz
),

spans as (
    select * from held
    union all by name
    select * from unheld
)

select spans.*, card.node, card.pool, card.model
from spans
inner join (
    select gpu_uuid, arg_max(node, from_at) as node, arg_max(pool, from_at) as pool, any_value(model) as model
    from ledger_card
    group by gpu_uuid
) as card using (gpu_uuid);
