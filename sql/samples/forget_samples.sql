-- name: forget_samples(received_before_at)!
-- Remove samples that have become rows and were kept long enough for late fragments to find them.
-- Grain: one row per series_id and ts.
-- Reads: sample_progress
-- Writes: sample
-- Units: none
-- Ignores: samples that are no rows yet, however old.
delete from sample
where
    received_at < :received_before_at::timestamptz
    and seq <= (select assembled_seq from sample_progress);
