-- name: open_node_state(scheduler)
-- What a scheduler said last of each resource of its nodes, as far as it has not taken that back.
-- Grain: one row per node and resource.
-- Columns: scheduler varchar, node varchar, resource varchar, capacity double, allocatable double, allocated double,
--   free double, is_ready boolean, is_schedulable boolean, reason varchar, topology varchar, from_at timestamptz,
--   until_at timestamptz
-- Reads: node_state
-- Units: units of `resource`
-- Ignores: what ended.
-- Order: node, resource
select *
from node_state
where scheduler = :scheduler::varchar and until_at is null
qualify row_number() over (partition by node, resource order by from_at desc) = 1
order by node, resource;
