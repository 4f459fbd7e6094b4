-- name: ledger_free()!
-- What is left of each card in each piece: unavailable, spare, or free; and for a free share whether any wanted shape could use it.
-- Grain: one row per card and piece that is not wholly held.
-- Reads: ledger_slot, ledger_hold, node, allocation, workload, model_alias
-- Writes: ledger_free
-- Units: share of a physical GPU
-- Ignores: quota and priority: only whether a shape fits on the node. Wanted shapes are those pending throughout the piece; if none, every class with 1 % or more of the GPUs requested in the 28 days before.
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
    select node, from_at, until_at, any_value(model) as model, list(free_milli) as free_millis
    from free
    group by node, from_at, until_at
),

-- When was each shape waited for? Where the set of waiting shapes changes, free pieces are cut.
waits as (
    select num_gpu, gpu_milli, cpu_milli, memory_mib, model_set, submitted_at as from_at, least(started_at, ended_at) as until_at
    from workload
    where
        num_gpu > 0
        and submitted_at < (select max(until_at) from free)
        and coalesce(least(started_at, ended_at) > greatest(submitted_at, (select min(from_at) from free)), true)
),

waiting_counts as (
    select
        * exclude (turn),
        sum(sum(turn)) over (partition by num_gpu, gpu_milli, cpu_milli, memory_mib, model_set order by changed_at) as waiting,
        sum(turn) as turn
    from (
        select * exclude (from_at, until_at), from_at as changed_at, 1 as turn from waits
        union all
        select * exclude (from_at, until_at), until_at, -1 from waits where until_at is not null
    )
    group by num_gpu, gpu_milli, cpu_milli, memory_mib, model_set, changed_at
),

turns as (select distinct changed_at from waiting_counts where waiting = 0 or waiting = turn),

cut_nodes as (
    select
        node,
        piece_at,
        from_at,
        coalesce(lead(from_at) over (partition by node, piece_at order by from_at), until_at) as until_at
    from (
        select node, from_at as piece_at, from_at, until_at from free_nodes
        union
        select free_nodes.node, free_nodes.from_at, turns.changed_at, free_nodes.until_at
        from free_nodes
        inner join turns on turns.changed_at > free_nodes.from_at and turns.changed_at < free_nodes.until_at
    )
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

instants as (select distinct from_at from cut_nodes),

pending as (
    select distinct instants.from_at, waits.* exclude (from_at, until_at)
    from instants
    inner join waits on waits.from_at <= instants.from_at and coalesce(waits.until_at > instants.from_at, true)
),

-- Where nothing waits: the usual classes, counted back from the end of the piece's own hour, so that a later build of
-- the hour sees the same.
quiet as (
    select from_at, make_timestamptz((epoch_us(from_at) // 3600000000 + 1) * 3600000000) as counted_until_at
    from instants
    where from_at not in (select from_at from pending)
),

usual as (
    select
        hours.counted_until_at, workload.num_gpu, workload.gpu_milli, workload.cpu_milli, workload.memory_mib, workload.model_set
    from (select distinct counted_until_at from quiet) as hours
    inner join workload
        on
            workload.num_gpu > 0
            and workload.submitted_at >= hours.counted_until_at - interval 28 day
            and workload.submitted_at < hours.counted_until_at
    group by
        hours.counted_until_at, workload.num_gpu, workload.gpu_milli, workload.cpu_milli, workload.memory_mib, workload.model_set
    qualify
        sum(workload.pod_count * workload.num_gpu * workload.gpu_milli)
        >= 0.01 * sum(sum(workload.pod_count * workload.num_gpu * workload.gpu_milli)) over (partition by hours.counted_until_at)
),

wanted as (
    select * from pending
    union all by name
    select quiet.from_at, usual.* exclude (counted_until_at)
    from quiet
    inner join usual using (counted_until_at)
),

shapes as (
    select
        capacity.node,
        cut_nodes.piece_at,
        cut_nodes.from_at,
        cut_nodes.until_at,
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
    from cut_nodes
    inner join capacity on cut_nodes.node = capacity.node and cut_nodes.piece_at = capacity.from_at
    left join wanted on cut_nodes.from_at = wanted.from_at
),

ranked as (
    select node, piece_at, from_at, until_at, gpu_milli, max(node_rank) as node_rank
    from shapes
    group by all
),

-- 1 to 6 say how far the shape that got furthest got; 9 is a shape that fits, or nothing that is wanted at all.
fitted as (
    select
        free.gpu_uuid,
        free.from_at as piece_at,
        ranked.from_at,
        ranked.until_at,
        max(
            case
                when ranked.gpu_milli is null then 9
                when ranked.node_rank in (1, 2) then ranked.node_rank
                when free.free_milli < ranked.gpu_milli then 6
                else ranked.node_rank
            end
        ) as reach
    from free
    inner join ranked on free.node = ranked.node and free.from_at = ranked.piece_at
    group by all
)

select
    remainder.* exclude (from_at, until_at),
    coalesce(fitted.from_at, remainder.from_at) as from_at,
    coalesce(fitted.until_at, remainder.until_at) as until_at,
    case
        when remainder.unavailable_cause is not null then 'unavailable'
        when remainder.is_spare then 'reserved_spare'
        when fitted.reach < 9 then 'free_stranded'
        else 'free_usable'
    end as state,
    case
        when remainder.unavailable_cause is not null then remainder.unavailable_cause
        when remainder.is_spare then 'spare'
        else coalesce(['model', 'node_too_small', 'cpu', 'memory', 'insufficient_whole', 'fractional'][fitted.reach], '')
    end as cause
from remainder
left join fitted on remainder.gpu_uuid = fitted.gpu_uuid and remainder.from_at = fitted.piece_at
where remainder.share > 1e-9;
