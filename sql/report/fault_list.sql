-- name: fault_list(from_at, to_at)
-- The faults that were recognised in the window.
-- Grain: one row per fault.
-- Columns: ts timestamptz, last_at timestamptz, node varchar, gpu_uuid varchar, vendor varchar, kind varchar, code varchar,
--   event_count bigint, sources varchar[], detail varchar, is_begin_known boolean, is_told boolean, noted_at timestamptz
-- Reads: fault
-- Units: `is_told`: a driver or a scheduler told it, not readings alone; `noted_at`: when gpuledger first knew
-- Ignores: nothing.
-- Order: ts, node, gpu_uuid, kind, code
select ts, last_at, node, gpu_uuid, vendor, kind, code, event_count, sources, detail, is_begin_known, is_told, noted_at
from fault
where ts >= :from_at::timestamptz and ts < :to_at::timestamptz
order by ts, node, gpu_uuid, kind, code;
