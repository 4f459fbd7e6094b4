-- name: last_read()
-- When a source was last read with success.
-- Grain: one row.
-- Columns: read_at timestamptz
-- Reads: source_read, reading
-- Units: none
-- Ignores: what schedulers and importers say: it does not show that collectors live.
-- Order: none
with reads as (
    select max(ts) as read_at
    from source_read
    where ok
    union all
    select max(ts)
    from reading
)

select max(read_at) as read_at
from reads;
