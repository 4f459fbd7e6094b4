-- name: inventory_differences()
-- Where assets, scheduler and telemetry disagree, by name.
-- Grain: one row per kind of difference and card (or node).
-- Columns: kind varchar, subject varchar, node varchar, gpu_count double, from_at timestamptz, until_at timestamptz, detail varchar
-- Reads: inventory_difference
-- Units: GPUs
-- Ignores: differences that were gone at the last comparison.
-- Order: kind, node, subject
select kind, subject, node, gpu_count, from_at, until_at, detail
from inventory_difference
order by kind, node, subject;
