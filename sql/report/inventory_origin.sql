-- name: inventory_origin()
-- Where the inventory comes from: declared by a list, imported with a trace, or inferred from what was seen.
-- Grain: one row per origin.
-- Columns: origin varchar, gpu_count bigint
-- Reads: asset
-- Units: cards
-- Ignores: returned cards.
-- Order: origin
with newest as (
    select *
    from asset
    qualify row_number() over (partition by gpu_uuid order by from_at desc) = 1
)

select origin, count(*) as gpu_count
from newest
where status <> 'returned'
group by origin
order by origin;
