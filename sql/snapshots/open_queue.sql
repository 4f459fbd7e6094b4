-- name: open_queue(scheduler)
-- The queues of a scheduler.
-- Grain: one row per queue.
-- Columns: queue varchar, tenant varchar, cohort varchar, scheduler varchar, parent varchar, status varchar
-- Reads: queue
-- Units: none
-- Ignores: nothing.
-- Order: queue
select *
from queue
where scheduler = :scheduler::varchar
order by queue;
