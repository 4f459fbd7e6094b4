-- name: state_span(from_at, to_at)!
-- Append the window's ledger: every share of every card in exactly one state, neighbouring minutes of one state joined.
-- Grain: one row per card, slice, allocation and run of one state within an hour.
-- Reads: ledger_slot, ledger_judged, ledger_free, ledger_hold, ledger_card
-- Writes: state_span
-- Units: GPU-hours = share x length; ratios and watts are means over the observed minutes
-- Ignores: pieces outside the window, which were only context.
insert into state_span by name
with pieces as (
    select
        judged.hour_at,
        judged.from_at,
        judged.until_at,
        judged.gpu_uuid,
        judged.slice_id,
        judged.node,
        judged.allocation_id,
        judged.state,
        judged.activity,
        judged.basis,
        judged.share,
        judged.piece_seconds,
        case when judged.read_seconds > 0 then judged.piece_seconds end as observed_seconds,
        judged.gpu_util_ratio,
        judged.sm_active_ratio,
        judged.fb_used_ratio,
        judged.power_watts,
        judged.coverage_ratio
    from ledger_judged as judged
    where judged.from_at >= :from_at::timestamptz and judged.from_at < :to_at::timestamptz
),

bounded as (
    select
        *,
        case
            when
                from_at is distinct from lag(until_at) over of_share
                or state is distinct from lag(state) over of_share
                or activity is distinct from lag(activity) over of_share
                or basis is distinct from lag(basis) over of_share
                or share is distinct from lag(share) over of_share
                then 1
            else 0
        end as is_new_run
    from pieces
    window of_share as (partition by allocation_id, gpu_uuid, slice_id, hour_at order by from_at)
),

runs as (
    select *, sum(is_new_run) over (partition by allocation_id, gpu_uuid, slice_id, hour_at order by from_at rows unbounded preceding) as run
    from bounded
),

held as (
    select
        hour_at,
        min(from_at) as from_at,
        max(until_at) as until_at,
        gpu_uuid,
        slice_id,
        any_value(node) as node,
        allocation_id,
        any_value(state) as state,
        any_value(activity) as activity,
        '' as cause,
        any_value(basis) as basis,
        any_value(share) as share,
        any_value(share) * sum(piece_seconds) / 3600 as gpu_hours,
        coalesce(sum(observed_seconds), 0) / 60 as observed_minutes,
        sum(gpu_util_ratio * piece_seconds) / sum(piece_seconds) filter (where gpu_util_ratio is not null) as gpu_util_ratio,
        sum(sm_active_ratio * piece_seconds) / sum(piece_seconds) filter (where sm_active_ratio is not null) as sm_active_ratio,
        sum(fb_used_ratio * piece_seconds) / sum(piece_seconds) filter (where fb_used_ratio is not null) as fb_used_ratio,
        sum(power_watts * piece_seconds) / sum(piece_seconds) filter (where power_watts is not null) as power_watts,
        any_value(coverage_ratio) as coverage_ratio
    from runs
    group by hour_at, gpu_uuid, slice_id, allocation_id, run
),

unheld as (
    select
        hour_at,
        from_at,
        until_at,
        gpu_uuid,
        '' as slice_id,
        node,
        '' as allocation_id,
        state,
        null::varchar as activity,
        cause,
        case
            when state = 'unavailable' then 'condition'
            when state = 'reserved_spare' then 'pool'
            else 'allocation'
        end as basis,
        share,
        share * epoch_us(until_at - from_at) / 3.6e9 as gpu_hours,
        0 as observed_minutes
    from ledger_free
    where from_at >= :from_at::timestamptz and from_at < :to_at::timestamptz
),

spans as (
    select * from held
    union all by name
    select * from unheld
)

select
    spans.*,
    coalesce(hold.workload_id, '') as workload_id,
    coalesce(hold.pod, '') as pod,
    coalesce(hold.tenant, '') as tenant,
    coalesce(hold."user", '') as "user",
    coalesce(hold.queue, '') as queue,
    coalesce(hold.stage, '') as stage,
    coalesce(hold.kind, '') as kind,
    card.pool,
    card.model
from spans
left join ledger_hold as hold on spans.allocation_id = hold.allocation_id
left join (select gpu_uuid, any_value(pool) as pool, any_value(model) as model from ledger_card group by gpu_uuid) as card
    on spans.gpu_uuid = card.gpu_uuid;
