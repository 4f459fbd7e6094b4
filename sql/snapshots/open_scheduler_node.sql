-- name: open_scheduler_node(scheduler)
-- How many GPUs each node of a scheduler offers, as far as it has not taken that back.
-- Grain: one row per node.
-- Columns: scheduler varchar, node varchar, gpu_count bigint, from_at timestamptz, until_at timestamptz
-- Reads: scheduler_node
-- Units: GPUs
-- Ignores: what ended.
-- Order: node
select *
from scheduler_node
where scheduler = :scheduler::varchar and until_at is null
qualify row_number() over (partition by node order by from_at desc) = 1
order by node;
