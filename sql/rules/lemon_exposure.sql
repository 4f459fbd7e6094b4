-- name: lemon_exposure(from_at, to_at)
-- How long work was scheduled on each node: hours in which anything of the node was held.
-- Grain: one row per node.
-- Columns: node varchar, node_days double, gpu_count bigint
-- Reads: ledger_hour
-- Units: days of 24 such hours; `gpu_count` cards that were held at some time
-- Ignores: nodes of which nothing was held: there is no exposure, and no rate.
-- Order: node
select
    node,
    count(distinct hour_at) / 24.0 as node_days,
    count(distinct gpu_uuid) as gpu_count
from ledger_hour
where
    hour_at >= :from_at::timestamptz
    and hour_at < :to_at::timestamptz
    and state like 'alloc\_%' escape '\'
    and gpu_hours > 0
group by node
order by node;
