-- name: last_snapshot(prefix)
-- The last snapshot of a scheduler of which everything was stored: the batch that says so.
-- Grain: one row.
-- Columns: batch_id varchar
-- Reads: batch
-- Units: none
-- Ignores: snapshots of which a part is not stored.
-- Order: none
select max(batch_id) as batch_id
from batch
where starts_with(batch_id, :prefix::varchar) and ends_with(batch_id, ':done');
