-- name: gpu_list(text, limit_count)
-- Cards whose UUID or node contains a text, as they are listed last.
-- Grain: one row per card.
-- Columns: gpu_uuid varchar, node varchar, slot bigint, model varchar, pool varchar, origin varchar
-- Reads: asset
-- Units: none
-- Ignores: returned cards, and case.
-- Order: node, slot, gpu_uuid
with newest as (
    select *
    from asset
    qualify row_number() over (partition by gpu_uuid order by from_at desc) = 1
)

select gpu_uuid, node, slot, coalesce(model, '') as model, pool, origin
from newest
where
    status <> 'returned'
    and (contains(lower(gpu_uuid), lower(:text)) or contains(lower(node), lower(:text)))
order by node, slot, gpu_uuid
limit :limit_count::bigint;
