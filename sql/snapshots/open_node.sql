-- name: open_node(scheduler)
-- The nodes that a scheduler listed and has not taken back.
-- Grain: one row per node.
-- Columns: node varchar, cluster varchar, pool varchar, model varchar, gpu_count bigint, cpu_milli bigint,
--   memory_mib bigint, leaf varchar, spine varchar, nvl_domain varchar, from_at timestamptz, until_at timestamptz
-- Reads: node, node_state, scheduler_node
-- Units: GPUs
-- Ignores: nodes that ended, and what is said of a node's name in other clusters.
-- Order: node
select node.*
from node
semi join (
    select node from node_state where scheduler = :scheduler::varchar
    union
    select node from scheduler_node where scheduler = :scheduler::varchar
) as own using (node)
where
    node.until_at is null
    and node.cluster = case when contains(:scheduler::varchar, '/') then split_part(:scheduler::varchar, '/', 2) else 'default' end
qualify row_number() over (partition by node.node order by node.from_at desc) = 1
order by node.node;
