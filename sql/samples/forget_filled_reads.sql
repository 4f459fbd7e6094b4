-- name: forget_filled_reads(low_at, high_at)!
-- Remove the reads of the staged nodes, sources and instants: they are counted anew.
-- Grain: one row per node, source and ts.
-- Reads: staged
-- Writes: source_read
-- Units: none
-- Ignores: reads outside [low_at, high_at].
delete from source_read
using staged
where
    source_read.node = staged.node
    and source_read.source = staged.source
    and source_read.ts = staged.ts
    and source_read.ts between :low_at::timestamptz and :high_at::timestamptz;
