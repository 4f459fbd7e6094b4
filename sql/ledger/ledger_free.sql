-- name: ledger_free()!
-- What is left of each card in each piece: unavailable, spare, or free; and for a free share whether any wanted shape could use it.
-- Grain: one row per card and piece that is not wholly held.
-- Reads: ledger_slot, ledger_hold, node, allocation, workload, model_alias
-- Writes: ledger_free
-- Units: share of a physical GPU
-- Ignores: quota and priority: only whether a shape fits on the node. Wanted shapes are those pending when the piece begins; if none, every class with 1 % or more of the GPUs requested in the 28 days before.
create or replace temp table ledger_free as
with held as (
    select slot.gpu_uuid, slot.from_at, sum(hold.share) as share
    from ledger_slot as slot
    inner join ledger_hold as hold
        on
            slot.gpu_uuid = hold.gpu_uuid
            and slot.from_at >= hold.started_at
            and coalesce(slot.from_at < hold.ended_at, true)
    where slot.unavailable_cause is null
    group by all
),

remainder as (
    select
        slot.*,
        case when slot.unavailable_cause is not null then 1 else 1 - least(1, coalesce(held.share, 0)) end as share
    from ledger_slot as slot
    left join held using (gpu_uuid, from_at)
),

free as (
    select *, round(share * 1000)::integer as free_milli
    from remainder
    where share > 1e-9 and unavailable_cause is null and not is_spare
),

free_nodes as (
    select node, from_at, any_value(model) as model, list(free_milli) as free_millis, hour_at
    from free
    group by all
),

occupied as (
    select
        free_nodes.node,
        free_nodes.from_at,
        sum(allocation.cpu_milli) as cpu_milli,
        sum(allocation.memory_mib) as memory_mib
    from free_nodes
    inner join allocation
        on
            free_nodes.node = allocation.node
            and free_nodes.from_at >= allocation.started_at
            and coalesce(free_nodes.from_at < allocation.ended_at, true)
    group by all
),

capacity as (
    select
        free_nodes.node,
        free_nodes.from_at,
        free_nodes.model,
        coalesce(model_alias.model, free_nodes.model) as canonical_model,
        free_nodes.free_millis,
        known.gpu_count,
        known.cpu_milli as node_cpu_milli,
        known.memory_mib as node_memory_mib,
        known.cpu_milli - coalesce(occupied.cpu_milli, 0) as cpu_free_milli,
        known.memory_mib - coalesce(occupied.memory_mib, 0) as memory_free_mib
    from free_nodes
    left join (
        select node, max(gpu_count) as gpu_count, arg_max(cpu_milli, from_at) as cpu_milli, arg_max(memory_mib, from_at) as memory_mib
        from node
        group by node
    ) as known using (node)
    left join model_alias on free_nodes.model = model_alias.name
    left join occupied on free_nodes.node = occupied.node and free_nodes.from_at = occupied.from_at
),

instants as (select distinct from_at from free),

pending as (
    select distinct
        instants.from_at, workload.num_gpu, workload.gpu_milli, workload.cpu_milli, workload.memory_mib, workload.model_set
    from instants
    inner join workload
        on
            workload.submitted_at <= instants.from_at
            and coalesce(workload.started_at > instants.from_at, true)
            and coalesce(workload.ended_at > instants.from_at, true)
            and workload.num_gpu > 0
),

usual as (
    select num_gpu, gpu_milli, cpu_milli, memory_mib, model_set
    from workload
    where
        num_gpu > 0
        and submitted_at > (select max(from_at) - interval 28 day from instants)
        and submitted_at <= (select max(from_at) from instants)
    group by num_gpu, gpu_milli, cpu_milli, memory_mib, model_set
    qualify sum(pod_count * num_gpu * gpu_milli) >= 0.01 * sum(sum(pod_count * num_gpu * gpu_milli)) over ()
),

wanted as (
    select * from pending
    union all by name
    select instants.from_at, usual.*
    from instants
    cross join usual
    where instants.from_at not in (select from_at from pending)
),

shapes as (
    select
        capacity.node,
        capacity.from_at,
        wanted.gpu_milli,
        case
            when
                wanted.model_set is not null
                and not list_has_any(string_split(wanted.model_set, '|'), [capacity.model, capacity.canonical_model])
                then 1
            when wanted.num_gpu > capacity.gpu_count or wanted.cpu_milli > capacity.node_cpu_milli or wanted.memory_mib > capacity.node_memory_mib then 2
            when len(list_filter(capacity.free_millis, lambda milli: milli >= wanted.gpu_milli)) < wanted.num_gpu then 5
            when wanted.cpu_milli > capacity.cpu_free_milli then 3
            when wanted.memory_mib > capacity.memory_free_mib then 4
            else 9
        end as node_rank
    from capacity
    inner join wanted using (from_at)
),

ranked as (
    select node, from_at, gpu_milli, max(node_rank) as node_rank
    from shapes
    group by all
),

fitted as (
    select
        free.gpu_uuid,
        free.from_at,
        max(
            case
                when ranked.node_rank in (1, 2) then ranked.node_rank
                when free.free_milli < ranked.gpu_milli then 6
                else ranked.node_rank
            end
        ) as reach
    from free
    inner join ranked using (node, from_at)
    group by all
)

select
    remainder.*,
    case
        when remainder.unavailable_cause is not null then 'unavailable'
        when remainder.is_spare then 'reserved_spare'
        when coalesce(fitted.reach, 9) < 9 then 'free_stranded'
        else 'free_usable'
    end as state,
    case
        when remainder.unavailable_cause is not null then remainder.unavailable_cause
        when remainder.is_spare then 'spare'
        else coalesce(['model', 'node_too_small', 'cpu', 'memory', 'insufficient_whole', 'fractional'][fitted.reach], '')
    end as cause
from remainder
left join fitted on remainder.gpu_uuid = fitted.gpu_uuid and remainder.from_at = fitted.from_at
where remainder.share > 1e-9;
