-- name: consolidate_nodes(at)
-- What is free on each node at one instant, for work that would move there or start there.
-- Grain: one row per node with a card in the ledger at `at`
-- Columns: node varchar, pool varchar, leaf varchar, model varchar, card_count bigint, free_card_count bigint, away_card_count bigint,
--   cpu_free_milli bigint, memory_free_mib bigint
-- Reads: state_span, node, allocation
-- Units: whole cards; `away_card_count` are those that cannot be used or are set aside as spares
-- Ignores: cards that are free in part, which count as neither; NULL CPU and memory are not known
-- Order: by node
with cards as (
    select
        node,
        gpu_uuid,
        min(pool) as pool,
        min(model) as model,
        coalesce(sum(share) filter (where state in ('free_usable', 'free_stranded')), 0) as free_share,
        coalesce(bool_or(state in ('unavailable', 'reserved_spare')), false) as is_away
    from state_span
    where
        hour_at > :at::timestamptz - interval 1 hour
        and hour_at <= :at::timestamptz
        and from_at <= :at::timestamptz
        and until_at > :at::timestamptz
    group by node, gpu_uuid
),

held as (
    select
        node,
        sum(cpu_milli)::bigint as cpu_milli,
        sum(memory_mib)::bigint as memory_mib
    from allocation
    where started_at <= :at::timestamptz and coalesce(ended_at > :at::timestamptz, true)
    group by node
),

known as (
    select
        node,
        leaf,
        cpu_milli,
        memory_mib
    from node
    where from_at <= :at::timestamptz and coalesce(until_at > :at::timestamptz, true)
    qualify row_number() over (partition by node order by from_at desc) = 1
)

select
    cards.node,
    min(cards.pool) as pool,
    coalesce(any_value(known.leaf), '') as leaf,
    min(cards.model) as model,
    count(*) as card_count,
    count(*) filter (where cards.free_share > 1 - 1e-6) as free_card_count,
    count(*) filter (where cards.is_away) as away_card_count,
    any_value(known.cpu_milli) - coalesce(any_value(held.cpu_milli), 0) as cpu_free_milli,
    any_value(known.memory_mib) - coalesce(any_value(held.memory_mib), 0) as memory_free_mib
from cards
left join known on cards.node = known.node
left join held on cards.node = held.node
group by cards.node
order by cards.node
