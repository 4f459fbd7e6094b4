-- name: keep_samples(received_at, seq)!
-- Append the staged samples, all of them new, under one number.
-- Grain: one row per series_id and ts.
-- Reads: staged
-- Writes: sample
-- Units: none
-- Ignores: nothing.
insert into sample by name
select series_id, ts, value, :received_at::timestamptz as received_at, :seq::bigint as seq
from staged;
