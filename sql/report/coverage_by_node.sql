-- name: coverage_by_node(from_at, to_at)
-- How much of each node's held time was read, the least covered first.
-- Grain: one row per node.
-- Columns: node varchar, coverage_ratio double, unknown_gpu_hours double
-- Reads: ledger_hour
-- Units: ratio of held share-time; GPU-hours
-- Ignores: time in which nobody held the node's cards.
-- Order: coverage_ratio, smallest first
select
    node,
    sum(observed_gpu_hours) / nullif(sum(gpu_hours), 0) as coverage_ratio,
    coalesce(sum(gpu_hours) filter (where state = 'alloc_unknown'), 0) as unknown_gpu_hours
from ledger_hour
where
    hour_at > :from_at::timestamptz - interval 1 hour
    and hour_at < :to_at::timestamptz
    and starts_with(state, 'alloc_')
group by node
order by coverage_ratio, node;
