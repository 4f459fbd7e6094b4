-- name: goodput_scheduling(from_at, to_at)
-- Of all GPU-hours of the inventory, those held by work that had started on cards that could be used.
-- Grain: one row.
-- Columns: started_gpu_hours double, held_gpu_hours double, capacity_gpu_hours double
-- Reads: ledger_hour
-- Units: GPU-hours; `started` leaves out alloc_starting, in which a gang is incomplete, or images and warm-up take their time
-- Ignores: nothing: repair, spares and free cards are capacity.
-- Order: none
select
    coalesce(sum(gpu_hours) filter (where state like 'alloc\_%' escape '\' and state <> 'alloc_starting'), 0) as started_gpu_hours,
    coalesce(sum(gpu_hours) filter (where state like 'alloc\_%' escape '\'), 0) as held_gpu_hours,
    coalesce(sum(gpu_hours), 0) as capacity_gpu_hours
from ledger_hour
where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz;
