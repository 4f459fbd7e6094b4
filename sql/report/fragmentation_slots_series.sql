-- name: fragmentation_slots_series(from_at, to_at, pool, topology_level)
-- How many gangs of each size fitted in one domain of a topology level, at the start of each hour.
-- Grain: one row per hour, pool and gang size.
-- Columns: hour_at timestamptz, pool varchar, gang_gpus bigint, slot_count bigint
-- Reads: fragmentation_hour
-- Units: GPUs a gang; gangs
-- Ignores: nodes whose domain at the level is not known. An empty `pool` gives all pools.
-- Order: hour_at, pool, gang_gpus
select
    hour_at,
    pool,
    gang_gpus,
    value::bigint as slot_count
from fragmentation_hour
where
    hour_at >= :from_at::timestamptz
    and hour_at < :to_at::timestamptz
    and (:pool::varchar = '' or pool = :pool::varchar)
    and measure = 'slots'
    and name = :topology_level::varchar
order by hour_at, pool, gang_gpus;
