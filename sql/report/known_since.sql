-- name: known_since()
-- The first instant of which anything is known: an asset, a hold, a reading or a queue's state.
-- Grain: one row.
-- Columns: from_at timestamptz
-- Reads: asset, reading, source_read, holding, allocation, queue_state
-- Units: none
-- Ignores: nothing.
-- Order: none
with firsts as (
    select min(from_at) as from_at from asset
    union all
    select min(ts) from reading
    union all
    select min(ts) from source_read
    union all
    select min(ts) from holding
    union all
    select min(started_at) from allocation
    union all
    select min(ts) from queue_state
)

select min(from_at) as from_at
from firsts;
