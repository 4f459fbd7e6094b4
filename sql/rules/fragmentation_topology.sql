-- name: fragmentation_topology(at, gang_nodes)
-- How many gangs of `gang_nodes` wholly free nodes still fit inside one domain of each network level.
-- Grain: one row per pool and level (nvl_domain, leaf, spine, cluster)
-- Columns: pool varchar, level varchar, domain_count bigint, free_node_count bigint, slot_count bigint,
--   frag_ratio double, biggest_gang_nodes bigint
-- Reads: state_span, node, asset, condition, allocation
-- Units: nodes; `frag_ratio` is the share of free nodes that no such gang can use, NULL where no node is free
-- Ignores: nodes under a condition or with a card that is, nodes whose domain at that level is unknown, shares and CPU
-- Order: by pool, from the nearest level to the farthest
with nodes_known_now as (
    select *
    from node
    where from_at <= :at::timestamptz and (until_at is null or until_at > :at::timestamptz)
    qualify row_number() over (partition by node order by from_at desc) = 1
),

-- Two domains of one name in different domains above are two: racks are often numbered anew in each row.
spines_told_apart as (
    select
        node,
        pool,
        cluster,
        leaf,
        case when count(distinct cluster) over (partition by spine) > 1 then cluster || chr(31) || spine else spine end as spine,
        case when count(distinct cluster) over (partition by nvl_domain) > 1 then cluster || chr(31) || nvl_domain else nvl_domain end as nvl_domain
    from nodes_known_now
),

nodes_told_apart as (
    select
        node,
        pool,
        cluster,
        spine,
        nvl_domain,
        case
            when count(distinct spine) over (partition by leaf) > 1 or count(distinct cluster) over (partition by leaf) > 1
                then cluster || chr(31) || coalesce(spine, '') || chr(31) || leaf
            else leaf
        end as leaf
    from spines_told_apart
),

-- A card that is known and not in service keeps its node from being wholly free.
cards_out_of_service as (
    select node
    from asset
    where from_at <= :at::timestamptz and (until_at is null or until_at > :at::timestamptz)
    qualify
        row_number() over (partition by gpu_uuid order by from_at desc) = 1
        and status <> 'in_service'
),

free_nodes as (
    select node
    from card_room(:at::timestamptz)
    group by node
    having
        bool_and(not is_set_aside and free_gpus > 0.999999)
        and node not in (select cards_out_of_service.node from cards_out_of_service)
),

free_nodes_at_each_level as (
    select
        nodes_told_apart.node,
        nodes_told_apart.pool,
        unnest([1, 2, 3, 4]) as distance,
        unnest(['nvl_domain', 'leaf', 'spine', 'cluster']) as level,
        unnest([nvl_domain, leaf, spine, cluster]) as domain
    from nodes_told_apart
    where nodes_told_apart.node in (select free_nodes.node from free_nodes)
),

free_nodes_of_each_domain as (
    select
        pool,
        distance,
        level,
        domain,
        count(*) as free_node_count
    from free_nodes_at_each_level
    where domain is not null
    group by all
),

slots_of_each_level as (
    select
        pool,
        distance,
        level,
        count(*) as domain_count,
        sum(free_node_count)::bigint as free_node_count,
        sum(free_node_count // :gang_nodes::bigint)::bigint as slot_count,
        1 - :gang_nodes::bigint * sum(free_node_count // :gang_nodes::bigint) / sum(free_node_count) as frag_ratio,
        max(free_node_count) as biggest_gang_nodes
    from free_nodes_of_each_domain
    group by all
)

select
    pool,
    level,
    domain_count,
    free_node_count,
    slot_count,
    frag_ratio,
    biggest_gang_nodes
from slots_of_each_level
order by pool, distance
