-- name: fragmentation_extent()
-- Which hours have a stored snapshot of fragmentation.
-- Grain: one row.
-- Columns: from_at timestamptz, to_at timestamptz, hour_count bigint
-- Reads: fragmentation_hour
-- Units: hours
-- Ignores: nothing. Times are NULL where none is stored; `to_at` is the end of the last hour.
-- Order: none
select
    min(hour_at) as from_at,
    max(hour_at) + interval 1 hour as to_at,
    count(distinct hour_at) as hour_count
from fragmentation_hour;
