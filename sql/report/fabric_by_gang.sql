-- name: fabric_by_gang(from_at, to_at)
-- What the network of the nodes of each workload carried while it held cards there.
-- Grain: one row per workload and hour.
-- Columns: hour_at timestamptz, workload_id varchar, node_count bigint, told_node_count bigint, shared_node_count bigint,
--   sent_bytes_per_second double, received_bytes_per_second double, link_bytes_per_second double, link_downed_count bigint
-- Reads: state_span, link_reading
-- Units: bytes per second, the sum of its nodes' means; `told_node_count`: nodes that told any; `shared_node_count`: those on which
--   other work held cards in the hour, whose traffic is in the figures and not told apart
-- Ignores: the time between two readings in which the holding began or ended. NULL where no node told anything.
-- Order: hour_at, workload_id
with holds as (
    select hour_at, workload_id, node, min(from_at) as from_at, max(until_at) as until_at
    from state_span
    where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz and allocation_id <> '' and workload_id <> ''
    group by hour_at, workload_id, node
),

placed as (
    select *, count(*) over (partition by hour_at, node) > 1 as is_shared
    from holds
),

ports as (
    select
        placed.hour_at,
        placed.workload_id,
        placed.node,
        max(step.rate_bits_per_second) / 8 as link_bytes_per_second,
        sum(step.sent_bytes) / sum(step.elapsed_seconds) filter (where step.sent_bytes is not null) as sent_bytes_per_second,
        sum(step.received_bytes) / sum(step.elapsed_seconds) filter (where step.received_bytes is not null) as received_bytes_per_second,
        sum(step.link_downed_count) as link_downed_count
    from placed
    inner join link_step(:from_at::timestamptz, :to_at::timestamptz) as step
        on placed.node = step.node and placed.hour_at = step.hour_at and step.before_at >= placed.from_at and step.ts <= placed.until_at
    group by placed.hour_at, placed.workload_id, placed.node, step.device, step.port
),

nodes as (
    select
        hour_at,
        workload_id,
        node,
        sum(sent_bytes_per_second) as sent_bytes_per_second,
        sum(received_bytes_per_second) as received_bytes_per_second,
        sum(link_bytes_per_second) as link_bytes_per_second,
        sum(link_downed_count) as link_downed_count
    from ports
    group by hour_at, workload_id, node
)

select
    placed.hour_at,
    placed.workload_id,
    count(*) as node_count,
    count(*) filter (where coalesce(nodes.sent_bytes_per_second, nodes.received_bytes_per_second) is not null) as told_node_count,
    count(*) filter (where placed.is_shared) as shared_node_count,
    sum(nodes.sent_bytes_per_second) as sent_bytes_per_second,
    sum(nodes.received_bytes_per_second) as received_bytes_per_second,
    sum(nodes.link_bytes_per_second) as link_bytes_per_second,
    sum(nodes.link_downed_count)::bigint as link_downed_count
from placed
left join nodes using (hour_at, workload_id, node)
group by placed.hour_at, placed.workload_id
order by placed.hour_at, placed.workload_id;
