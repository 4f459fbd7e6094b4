-- name: ledger_spoken(from_at, to_at)!
-- When a scheduler speaks for a card: while it allocates it, and from the first to the last of its node's allocations.
-- Grain: one row per gpu_uuid and stretch; stretches of a card do not overlap.
-- Reads: allocation, ledger_card
-- Writes: ledger_spoken
-- Units: none
-- Ignores: allocations of no card. On the node's other cards up to a day without any allocation is still the scheduler's; a longer one is not. A card's node is the inventory's, whatever the scheduler calls it.
create or replace temp table ledger_spoken as
with allocated as (
    select gpu_uuid, node, started_at, coalesce(ended_at, 'infinity'::timestamptz) as ended_at
    from allocation
    where
        gpu_uuid is not null
        and started_at < :to_at::timestamptz + interval 1 day
        and coalesce(ended_at > :from_at::timestamptz - interval 3 day, true)
        and coalesce(ended_at > started_at, true)
),

cards as (select distinct gpu_uuid, node from ledger_card),

by_node as (
    select node, started_at, ended_at from allocated
    union
    select cards.node, allocated.started_at, allocated.ended_at
    from allocated
    inner join cards using (gpu_uuid)
),

stretched as (
    select
        *,
        coalesce(
            started_at - interval 1 day
            > max(ended_at) over (partition by node order by started_at, ended_at rows between unbounded preceding and 1 preceding),
            true
        )::integer as is_new
    from by_node
),

stretches as (
    select node, min(started_at) as from_at, max(ended_at) as until_at
    from (
        select *, sum(is_new) over (partition by node order by started_at, ended_at rows unbounded preceding) as stretch
        from stretched
    )
    group by node, stretch
),

spoken as (
    select cards.gpu_uuid, stretches.from_at, stretches.until_at
    from stretches
    inner join cards using (node)
    union
    select gpu_uuid, started_at, ended_at from allocated
),

marked as (
    select
        *,
        coalesce(from_at > max(until_at) over (partition by gpu_uuid order by from_at, until_at rows between unbounded preceding and 1 preceding), true)::integer as is_new
    from spoken
),

numbered as (
    select *, sum(is_new) over (partition by gpu_uuid order by from_at, until_at rows unbounded preceding) as stretch
    from marked
)

select gpu_uuid, min(from_at) as from_at, max(until_at) as until_at
from numbered
group by gpu_uuid, stretch;
