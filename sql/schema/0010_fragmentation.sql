-- What is free at an instant, for the queries of fragmentation, and what of it was blocked by what, hour by hour.

-- The ledger's spans at `moment`; where the ledger ends within the two hours before, those at its end.
create macro ledger_at(moment) as table
select *
from state_span
where hour_at > moment - interval 2 hour and hour_at <= moment and from_at <= moment
qualify
    case
        when max(until_at) over () > moment then until_at > moment
        else until_at = max(until_at) over ()
    end;

-- Each card in service at `moment`, and what nobody held of it: as the ledger says; where that does not reach, what
-- allocations leave. `is_set_aside`: under a condition, or a spare. `free_state` and `free_cause` are the ledger's.
create macro card_room(moment) as table
with cards_known as (
    select gpu_uuid, node, slot, model, pool, status
    from asset
    where from_at <= moment and (until_at is null or until_at > moment)
    qualify row_number() over (partition by gpu_uuid order by from_at desc) = 1
),

set_aside as (
    select distinct subject_kind, subject
    from condition
    where from_at <= moment and (until_at is null or until_at > moment)
),

taken as (
    select gpu_uuid, sum(share) as share
    from allocation
    where gpu_uuid is not null and started_at <= moment and (ended_at is null or ended_at > moment)
    group by gpu_uuid
),

told as (
    select
        gpu_uuid,
        coalesce(sum(share) filter (where starts_with(state, 'free_')), 0) as free_gpus,
        bool_or(state in ('unavailable', 'reserved_spare')) as is_set_aside,
        max(state) filter (where starts_with(state, 'free_')) as free_state,
        max(cause) filter (where starts_with(state, 'free_')) as free_cause
    from ledger_at(moment)
    group by gpu_uuid
)

select
    cards_known.gpu_uuid,
    cards_known.node,
    cards_known.slot,
    cards_known.model,
    cards_known.pool,
    coalesce(told.is_set_aside, whole_node.subject is not null or single_card.subject is not null) as is_set_aside,
    coalesce(told.free_gpus, greatest(0, 1 - coalesce(taken.share, 0))) as free_gpus,
    told.free_state,
    told.free_cause
from cards_known
left join told on cards_known.gpu_uuid = told.gpu_uuid
left join set_aside as whole_node on whole_node.subject_kind = 'node' and whole_node.subject = cards_known.node
left join set_aside as single_card on single_card.subject_kind = 'gpu' and single_card.subject = cards_known.gpu_uuid
left join taken on cards_known.gpu_uuid = taken.gpu_uuid
where cards_known.status = 'in_service';

-- What was free at the start of an hour, and what it was worth. Grain: (hour_at, pool, measure, name, gang_gpus).
-- measure `free`: GPUs by what blocks them (`name`: usable, a cause of stranding, mig_placement, topology, quota).
-- measure `fgd_pending`, `fgd_typical`: fragmented GPUs under the weighting `name`; NULL where no shape was asked for.
-- measure `slots`: how many gangs of `gang_gpus` fit at the topology level `name`; `largest_gang`: GPUs of the largest.
-- measure `total`: cards in service (`name` in_service) and those of them set aside. `gang_gpus` is 0 but for slots.
create table fragmentation_hour (
    hour_at timestamptz not null,
    pool varchar not null,
    measure varchar not null,
    name varchar not null,
    gang_gpus bigint not null,
    value double
);
