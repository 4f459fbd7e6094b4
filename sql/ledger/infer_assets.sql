-- name: infer_assets()!
-- Write an inferred asset for every card that telemetry or a scheduler has shown; run only where nobody declared any.
-- Grain: one row per gpu_uuid.
-- Reads: reading, allocation, node
-- Writes: asset
-- Units: none
-- Ignores: cards that vanish stay in the inventory until somebody declares that they left. UUIDs of slices (`MIG-...`): how many cards they lie on is not known, so they are never cards; inventory_difference names a node that shows nothing else.
insert into asset by name
with evidence as (
    select gpu_uuid, node, model, min(ts) as from_at, max(ts) as last_at
    from reading
    where not starts_with(gpu_uuid, 'MIG-')
    group by all
    union all
    select gpu_uuid, node, null, min(started_at), max(started_at)
    from allocation
    where not starts_with(gpu_uuid, 'MIG-')
    group by all
),

seen as (
    select
        gpu_uuid,
        arg_max(node, last_at) as node,
        arg_max(model, last_at) filter (where model is not null) as model,
        min(from_at) as from_at
    from evidence
    group by gpu_uuid
),

placed as (
    select seen.gpu_uuid, seen.node, coalesce(seen.model, node.model) as model, coalesce(node.pool, 'default') as pool, seen.from_at
    from seen
    left join (select node, any_value(model) as model, any_value(pool) as pool from node group by node) as node using (node)
)

select
    gpu_uuid,
    node,
    null::bigint as slot,
    model,
    pool,
    'in_service' as status,
    'inferred' as origin,
    from_at,
    null::timestamptz as until_at
from placed;
