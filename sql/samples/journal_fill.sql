-- name: journal_fill(batch_id, row_count, committed_at, earliest_at)!
-- Note in the journal of batches that rows were made of samples, so that a restart knows which hours they touch.
-- Grain: one row per batch_id.
-- Reads: none
-- Writes: batch
-- Units: count
-- Ignores: nothing; a sender's batch that took the same name keeps its place.
insert into batch (batch_id, record, accepted_count, rejected_count, committed_at, earliest_at)
values (:batch_id, 'reading', :row_count::bigint, 0, :committed_at::timestamptz, :earliest_at::timestamptz)
on conflict (batch_id) do update
    set committed_at = excluded.committed_at, earliest_at = least(batch.earliest_at, excluded.earliest_at);
