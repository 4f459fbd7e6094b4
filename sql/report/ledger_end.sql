-- name: ledger_end()
-- Until when the ledger goes, and until when it is final.
-- Grain: one row.
-- Columns: to_at timestamptz, final_until_at timestamptz
-- Reads: ledger_hour, state_span
-- Units: none
-- Ignores: what it covers (ledger_extent says that, and takes longer). NULL while no ledger has been built.
-- Order: none
with hours as (
    select max(hour_at) as last_hour_at, max(hour_at + interval 1 hour) filter (where not is_provisional) as final_until_at
    from ledger_hour
)

select
    (select max(until_at) from state_span where hour_at = hours.last_hour_at) as to_at,
    hours.final_until_at
from hours;
