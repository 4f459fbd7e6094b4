-- name: last_sample_seq()
-- The highest number under which samples were kept, also when they are gone since.
-- Grain: one row.
-- Reads: sample, sample_progress
-- Writes: nothing; it is asked by the service itself, on the rows that it staged
-- Units: none
-- Ignores: nothing.
select greatest(assembled_seq, (select coalesce(max(seq), 0) from sample)) as seq
from sample_progress;
