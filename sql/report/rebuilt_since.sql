-- name: rebuilt_since(begun_after_at)
-- The first hour of the ledger that was built again after an instant.
-- Grain: one row.
-- Columns: from_at timestamptz
-- Reads: ledger_build
-- Units: none
-- Ignores: builds begun before it. NULL where there was none.
-- Order: none
select min(from_at) as from_at
from ledger_build
where begun_at >= :begun_after_at::timestamptz;
