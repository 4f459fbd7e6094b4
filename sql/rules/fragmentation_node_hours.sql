-- name: fragmentation_node_hours(from_at, to_at)
-- All GPU-hours, by hour, of the nodes that had a stranded share: what a stretch of stranding is measured against.
-- Grain: one row per node and hour.
-- Columns: node varchar, pool varchar, from_at timestamptz, until_at timestamptz, gpu_hours double
-- Reads: state_span
-- Units: GPU-hours
-- Ignores: nodes without a stranded share in the window.
-- Order: node, from_at
with stranded as (
    select distinct node
    from state_span
    where state = 'free_stranded' and hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz
)

select
    node,
    min(pool) as pool,
    min(from_at) as from_at,
    max(until_at) as until_at,
    sum(gpu_hours) as gpu_hours
from state_span
where
    hour_at >= :from_at::timestamptz
    and hour_at < :to_at::timestamptz
    and node in (select stranded.node from stranded)
group by node, hour_at
order by node, from_at;
