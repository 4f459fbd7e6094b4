-- name: ledger_card(from_at, to_at)!
-- The inventory of the window: each card with its status, vendor and power band, one row for each dated status.
-- Grain: one row per gpu_uuid and status interval, clipped to the window.
-- Reads: asset, model_alias, gpu_model
-- Writes: ledger_card
-- Units: watts
-- Ignores: returned cards; where two dated rows of a card overlap the later one counts from its start.
create or replace temp table ledger_card as
with dated as (
    select
        *,
        least(until_at, lead(from_at) over (partition by gpu_uuid order by from_at)) as ends_at
    from asset
)

select
    dated.gpu_uuid,
    dated.node,
    dated.pool,
    coalesce(dated.model, '') as model,
    dated.status,
    coalesce(gpu_model.vendor, 'other') as vendor,
    gpu_model.power_idle_watts + 0.15 * (gpu_model.power_tdp_watts - gpu_model.power_idle_watts) as idle_below_watts,
    gpu_model.power_idle_watts + 0.40 * (gpu_model.power_tdp_watts - gpu_model.power_idle_watts) as stalled_below_watts,
    greatest(dated.from_at, :from_at::timestamptz) as from_at,
    least(dated.ends_at, :to_at::timestamptz) as until_at
from dated
left join model_alias on dated.model = model_alias.name
left join gpu_model on model_alias.model = gpu_model.model
where
    dated.status <> 'returned'
    and dated.from_at < :to_at::timestamptz
    and coalesce(dated.ends_at > :from_at::timestamptz, true);
