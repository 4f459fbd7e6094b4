-- name: batch_list(prefix)
-- Batches that were committed, of those whose id begins with a text: what a sender that was interrupted need not send.
-- Grain: one row per batch.
-- Columns: batch_id varchar, record varchar, accepted_count bigint, committed_at timestamptz
-- Reads: batch
-- Units: rows
-- Ignores: nothing
-- Order: batch_id
select batch_id, record, accepted_count, committed_at
from batch
where starts_with(batch_id, :prefix)
order by batch_id;
