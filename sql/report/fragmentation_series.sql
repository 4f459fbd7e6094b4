-- name: fragmentation_series(from_at, to_at, pool, measure)
-- One measure of fragmentation at the start of each hour: free GPUs by what blocks them, or the FGD index by weighting.
-- Grain: one row per hour, pool and name.
-- Columns: hour_at timestamptz, pool varchar, name varchar, value double
-- Reads: fragmentation_hour
-- Units: GPUs. `measure` is free (`name`: usable, mig_placement, topology, quota, or a cause of stranding), fgd_typical or
--   fgd_pending (a weighting; NULL where no shape was asked for), total (in_service, set_aside) or largest_gang (a level)
-- Ignores: nothing. Of `free` a name that is absent at an hour is 0. An empty `pool` gives all pools.
-- Order: hour_at, pool, name
select
    hour_at,
    pool,
    name,
    value
from fragmentation_hour
where
    hour_at >= :from_at::timestamptz
    and hour_at < :to_at::timestamptz
    and (:pool::varchar = '' or pool = :pool::varchar)
    and measure = :measure::varchar
    and gang_gpus = 0
order by hour_at, pool, name;
