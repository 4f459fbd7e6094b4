-- name: open_queue_resource(scheduler)
-- What a scheduler said last of the resources of its queues, as far as it has not taken that back.
-- Grain: one row per queue, flavor and resource.
-- Columns: queue varchar, flavor varchar, resource varchar, nominal double, limit double, used double, reserved double,
--   borrowed double, lent double, pending double, from_at timestamptz, until_at timestamptz
-- Reads: queue_resource, queue
-- Units: units of `resource`
-- Ignores: what ended.
-- Order: queue, flavor, resource
select queue_resource.*
from queue_resource
semi join (select queue from queue where scheduler = :scheduler::varchar) as own using (queue)
where queue_resource.until_at is null
qualify
    row_number() over (
        partition by queue_resource.queue, queue_resource.flavor, queue_resource.resource order by queue_resource.from_at desc
    ) = 1
order by queue_resource.queue, queue_resource.flavor, queue_resource.resource;
