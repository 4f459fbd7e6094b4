-- name: ledger_extent()
-- What the ledger covers.
-- Grain: one row.
-- Columns: from_at timestamptz, to_at timestamptz, gpu_count bigint, node_count bigint, pool_count bigint, final_until_at timestamptz
-- Reads: ledger_hour, state_span
-- Units: none
-- Ignores: nothing. All columns are NULL or zero while no ledger has been built.
-- Order: none
with hours as (
    select
        min(hour_at) as from_at,
        count(distinct gpu_uuid) as gpu_count,
        count(distinct node) as node_count,
        count(distinct pool) as pool_count,
        max(hour_at + interval 1 hour) filter (where not is_provisional) as final_until_at
    from ledger_hour
),

spans as (
    select max(until_at) as to_at
    from state_span
    where hour_at = (select max(hour_at) from ledger_hour)
)

select hours.from_at, spans.to_at, hours.gpu_count, hours.node_count, hours.pool_count, hours.final_until_at
from hours
cross join spans;
