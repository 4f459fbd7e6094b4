-- name: state_span(from_at, to_at)!
-- Append the window's ledger: every share of every card in exactly one state, neighbouring minutes of one state joined.
-- Grain: one row per card, slice, allocation and run of one state within an hour.
-- Reads: ledger_slot, ledger_judged, ledger_free, ledger_hold, ledger_card
-- Writes: state_span
-- Units: GPU-hours = share x length; ratios and watts are means over the observed minutes
-- Ignores: pieces outside the window, which were only context.
insert into state_span by name
with held as (
    select
        judged.* exclude (hold, span_seconds, basis),
        case when hold.is_placed or judged.state <> 'alloc_unknown' then judged.basis else 'card_not_known' end as basis,
        judged.share * judged.span_seconds / 3600 as gpu_hours,
        hold.gpu_uuid,
        hold.slice_id,
        hold.allocation_id,
        hold.workload_id,
        hold.pod,
        hold.tenant,
        hold."user",
        hold.queue,
        hold.stage,
        hold.kind
    from ledger_judged as judged
    inner join ledger_hold as hold using (hold)
    where judged.from_at >= :from_at::timestamptz and judged.from_at < :to_at::timestamptz
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
inner join ledger_card as card
    on
        spans.gpu_uuid = card.gpu_uuid
        and spans.from_at >= card.from_at
        and spans.from_at < card.until_at;
