-- name: fault_news(committed_after_at)
-- What came since an instant that may tell of faults: the first moment that it speaks of, and when the last of it was committed.
-- Grain: one row.
-- Columns: from_at timestamptz, committed_at timestamptz
-- Reads: batch
-- Units: none
-- Ignores: batches of other records, those committed before `committed_after_at`, and those that told nothing new.
-- Order: none
select min(earliest_at) as from_at, max(committed_at) as committed_at
from batch
where
    record in ('reading', 'fault_event', 'condition', 'link_reading')
    and committed_at >= :committed_after_at::timestamptz
    and earliest_at is not null;
