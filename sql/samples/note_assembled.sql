-- name: note_assembled(upto_seq)!
-- Note that all samples up to a number have become rows.
-- Grain: one row.
-- Reads: none
-- Writes: sample_progress
-- Units: none
-- Ignores: nothing.
update sample_progress
set assembled_seq = :upto_seq::bigint;
