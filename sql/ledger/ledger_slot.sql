-- name: ledger_slot(from_at, to_at)!
-- Each card of the window cut wherever anything about its node changes, with what holds throughout each piece.
-- Grain: one row per gpu_uuid and piece; pieces never cross an hour.
-- Reads: ledger_card, ledger_hold, ledger_phase, allocation, condition, scheduler_node, node_state, workload
-- Writes: ledger_slot
-- Units: none
-- Ignores: nothing.
create or replace temp table ledger_slot as
with changes as (
    select node, from_at as changed_at from ledger_card
    union
    select node, until_at from ledger_card
    union
    select distinct node, unnest(generate_series(:from_at::timestamptz, :to_at::timestamptz, interval 1 hour)) from ledger_card
    union
    select ledger_card.node, unnest([hold.started_at, hold.ready_at, hold.graced_until_at, hold.floor_from_at, hold.ended_at])
    from ledger_hold as hold
    inner join ledger_card using (gpu_uuid)
    union
    select node, unnest([started_at, ended_at])
    from allocation
    where gpu_uuid is null and started_at < :to_at::timestamptz and coalesce(ended_at > :from_at::timestamptz, true)
    union
    select ledger_card.node, unnest([condition.from_at, condition.until_at])
    from condition
    inner join ledger_card on condition.subject in (ledger_card.node, ledger_card.gpu_uuid)
    union
    select node, unnest([from_at, until_at]) from scheduler_node
    union
    select ledger_card.node, unnest([phase.from_at, phase.until_at])
    from ledger_phase as phase
    inner join ledger_hold using (hold)
    inner join ledger_card using (gpu_uuid)
),

pieces as (
    select node, changed_at as from_at, lead(changed_at) over (partition by node order by changed_at) as until_at
    from (select distinct node, changed_at from changes where changed_at between :from_at::timestamptz and :to_at::timestamptz)
),

-- A scheduler that is read (by kube-state-metrics, or by snapshots, which tell what nodes have and whose work is) is heard of from some instant on,
-- and what it said first is not known to have been otherwise before. It speaks for the nodes that it lists only; another
-- scheduler, whose records are sent whole, says of every other node that it has none.
listeners as (
    select scheduler
    from scheduler_node
    where
        scheduler = 'kubernetes'
        or scheduler like 'kubernetes/%'
        or scheduler in (select scheduler from node_state)
        or scheduler in (select scheduler from workload)
    group by scheduler
),

offers as (
    select
        node,
        gpu_count,
        case
            when scheduler in (select scheduler from listeners) and lag(from_at) over of_node is null then '-infinity'::timestamptz
            else from_at
        end as from_at,
        least(until_at, lead(from_at) over of_node) as until_at
    from scheduler_node
    window of_node as (partition by scheduler, node order by from_at)
),

scheduled_nodes as (
    select piece.node, piece.from_at
    from pieces as piece
    inner join offers as known
        on
            piece.node = known.node
            and known.gpu_count > 0
            and piece.from_at >= known.from_at
            and coalesce(piece.from_at < known.until_at, true)
    group by all
),

blocked as (
    select
        card.gpu_uuid,
        piece.from_at,
        min(condition.condition) filter (where condition.condition <> 'spare') as unavailable_cause,
        bool_or(condition.condition = 'spare') as is_spare
    from pieces as piece
    inner join ledger_card as card using (node)
    inner join condition
        on
            ((condition.subject_kind = 'node' and condition.subject = card.node)
            or (condition.subject_kind = 'gpu' and condition.subject = card.gpu_uuid))
            and piece.from_at >= condition.from_at
            and coalesce(piece.from_at < condition.until_at, true)
    group by all
)

select
    card.gpu_uuid,
    card.node,
    card.pool,
    card.model,
    card.vendor,
    card.idle_below_watts,
    card.stalled_below_watts,
    make_timestamptz(epoch_us(piece.from_at) // 3600000000 * 3600000000) as hour_at,
    piece.from_at,
    piece.until_at,
    coalesce(blocked.is_spare, false) as is_spare,
    case
        when card.status <> 'in_service' then card.status
        when blocked.unavailable_cause is not null then blocked.unavailable_cause
        when
            scheduled_nodes.node is null
            and (card.node in (select node from offers) or exists (select 1 from scheduler_node where scheduler not in (select scheduler from listeners)))
            then 'not_in_scheduler'
    end as unavailable_cause
from pieces as piece
inner join ledger_card as card
    on piece.node = card.node and piece.from_at >= card.from_at and piece.from_at < card.until_at
left join blocked on card.gpu_uuid = blocked.gpu_uuid and piece.from_at = blocked.from_at
left join scheduled_nodes on piece.node = scheduled_nodes.node and piece.from_at = scheduled_nodes.from_at
where piece.until_at > piece.from_at;
