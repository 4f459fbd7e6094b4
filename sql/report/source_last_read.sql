-- name: source_last_read(from_at, to_at)
-- When each source last gave a reading, and of how many nodes and cards.
-- Grain: one row per source.
-- Columns: source varchar, node_count bigint, gpu_count bigint, last_at timestamptz, interval_seconds double
-- Reads: reading_hour
-- Units: seconds between two readings of a card
-- Ignores: what came after the newest built hour.
-- Order: source
select
    source,
    count(distinct node) as node_count,
    count(distinct gpu_uuid) as gpu_count,
    max(last_at) as last_at,
    arg_max(interval_seconds, last_at) as interval_seconds
from reading_hour
where hour_at > :from_at::timestamptz - interval 1 hour and hour_at < :to_at::timestamptz
group by source
order by source;
