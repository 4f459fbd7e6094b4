-- name: node_capacity(at)
-- What each node has, gave away and could still give of each GPU resource at an instant, as its scheduler says.
-- Grain: one row per scheduler, node and resource.
-- Columns: scheduler varchar, node varchar, pool varchar, resource varchar, capacity double, allocatable double,
--   allocated double, free double, is_ready boolean, is_schedulable boolean, reason varchar, topology varchar, from_at timestamptz
-- Reads: node_state, node
-- Units: units of `resource`: cards, slices or replicas
-- Ignores: nodes that the scheduler has taken back.
-- Order: scheduler, node, resource
with told as (
    select *
    from node_state
    where from_at <= :at::timestamptz and coalesce(until_at > :at::timestamptz, true)
    qualify row_number() over (partition by scheduler, node, resource order by from_at desc) = 1
)

select
    told.scheduler,
    told.node,
    coalesce(pools.pool, 'default') as pool,
    told.resource,
    told.capacity,
    told.allocatable,
    told.allocated,
    told.free,
    told.is_ready,
    told.is_schedulable,
    told.reason,
    told.topology,
    told.from_at
from told
left join (select node, arg_max(pool, from_at) as pool from node group by node) as pools using (node)
order by told.scheduler, told.node, told.resource;
