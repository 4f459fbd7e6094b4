-- name: unbuilt_since(committed_after_at)
-- The first instant of which a batch told something that no later build of the ledger took in.
-- Grain: one row.
-- Columns: from_at timestamptz
-- Reads: batch, ledger_build
-- Units: none
-- Ignores: batches committed before `committed_after_at`.
-- Order: none
select min(batch.earliest_at) as from_at
from batch
where
    batch.earliest_at is not null
    and batch.committed_at > :committed_after_at::timestamptz
    and not exists (
        select 1
        from ledger_build
        where ledger_build.begun_at >= batch.committed_at and ledger_build.from_at <= batch.earliest_at
    );
