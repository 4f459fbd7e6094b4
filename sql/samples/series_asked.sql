-- name: series_asked()
-- Name and labels of the series that are asked for.
-- Grain: one row per series_id.
-- Reads: series, staged
-- Writes: nothing; it is asked by the service itself, on the rows that it staged
-- Units: none
-- Ignores: nothing.
select series_id, name, labels
from series
semi join staged using (series_id)
order by series_id;
