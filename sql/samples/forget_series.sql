-- name: forget_series(seen_before_at)!
-- Remove series that nobody has written for long and of which no sample is here.
-- Grain: one row per series_id.
-- Reads: sample
-- Writes: series
-- Units: none
-- Ignores: series seen since.
delete from series
where
    last_seen_at < :seen_before_at::timestamptz
    and not exists (select 1 from sample where sample.series_id = series.series_id);
