-- name: queue_resources(at)
-- What a scheduler says of each resource of its queues at an instant, in its own figures and units.
-- Grain: one row per queue, flavor and resource.
-- Columns: scheduler varchar, queue varchar, flavor varchar, resource varchar, nominal double, limit double, used double,
--   reserved double, borrowed double, lent double, pending double, from_at timestamptz
-- Reads: queue_resource, queue
-- Units: units of `resource`; a NULL nominal or limit is "no such limit", every other NULL is "not reported"
-- Ignores: what ended.
-- Order: scheduler, queue, flavor, resource
with told as (
    select *
    from queue_resource
    where from_at <= :at::timestamptz and coalesce(until_at > :at::timestamptz, true)
    qualify row_number() over (partition by queue, flavor, resource order by from_at desc) = 1
)

select
    coalesce(queue.scheduler, 'default') as scheduler,
    told.queue,
    told.flavor,
    told.resource,
    told.nominal,
    told."limit",
    told.used,
    told.reserved,
    told.borrowed,
    told.lent,
    told.pending,
    told.from_at
from told
left join queue using (queue)
order by scheduler, told.queue, told.flavor, told.resource;
