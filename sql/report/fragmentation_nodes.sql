-- name: fragmentation_nodes(at)
-- Size of each node at an instant, its free CPU and memory, and where it stands.
-- Grain: one row per node with a card in service.
-- Columns: node varchar, pool varchar, model varchar, gpu_count bigint, cpu_milli bigint, memory_mib bigint,
--   cpu_free_milli double, memory_free_mib double, cluster varchar, leaf varchar, spine varchar, nvl_domain varchar, topology varchar
-- Reads: node, asset, allocation, node_state
-- Units: GPUs, thousandths of a CPU, MiB; NULL is not known
-- Ignores: CPU and memory of pods that no allocation names. `topology` is a scheduler's own levels (JSON, level to domain).
-- Order: node
with cards_known_now as (
    select gpu_uuid, node, pool, model, status
    from asset
    where from_at <= :at::timestamptz and (until_at is null or until_at > :at::timestamptz)
    qualify row_number() over (partition by gpu_uuid order by from_at desc) = 1
),

cards as (
    select node, min(pool) as pool, min(model) as model, count(*) as gpu_count
    from cards_known_now
    where status = 'in_service'
    group by node
),

nodes_known_now as (
    select *
    from node
    where from_at <= :at::timestamptz and (until_at is null or until_at > :at::timestamptz)
    qualify row_number() over (partition by node order by from_at desc) = 1
),

taken as (
    select node, sum(cpu_milli) as cpu_milli, sum(memory_mib) as memory_mib
    from allocation
    where started_at <= :at::timestamptz and (ended_at is null or ended_at > :at::timestamptz)
    group by node
),

told as (
    select node, max(topology) as topology
    from node_state
    where topology is not null and from_at <= :at::timestamptz and (until_at is null or until_at > :at::timestamptz)
    group by node
)

select
    cards.node,
    coalesce(nodes_known_now.pool, cards.pool) as pool,
    coalesce(nodes_known_now.model, cards.model) as model,
    coalesce(nodes_known_now.gpu_count, cards.gpu_count) as gpu_count,
    nodes_known_now.cpu_milli,
    nodes_known_now.memory_mib,
    (nodes_known_now.cpu_milli - coalesce(taken.cpu_milli, 0))::double as cpu_free_milli,
    (nodes_known_now.memory_mib - coalesce(taken.memory_mib, 0))::double as memory_free_mib,
    coalesce(nodes_known_now.cluster, 'default') as cluster,
    nodes_known_now.leaf,
    nodes_known_now.spine,
    nodes_known_now.nvl_domain,
    told.topology
from cards
left join nodes_known_now on cards.node = nodes_known_now.node
left join taken on cards.node = taken.node
left join told on cards.node = told.node
order by cards.node;
