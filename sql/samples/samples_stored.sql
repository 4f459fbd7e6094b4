-- name: samples_stored(low_at, high_at)
-- The stored values of the series and instants of the staged samples.
-- Grain: one row per series_id and ts.
-- Reads: sample, staged
-- Writes: nothing; it is asked by the service itself, on the rows that it staged
-- Units: none
-- Ignores: samples outside [low_at, high_at], the span of the staged ones.
select series_id, ts, sample.value
from sample
semi join staged using (series_id, ts)
where sample.ts between :low_at::timestamptz and :high_at::timestamptz;
