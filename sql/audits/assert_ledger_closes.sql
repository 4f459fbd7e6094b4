-- name: assert_ledger_closes(from_at, to_at)
-- Every pool and hour in which the states do not add up to the inventory; must give no row.
-- Grain: one row per pool and hour that is off by more than a millionth of its GPU-hours.
-- Columns: pool varchar, hour_at timestamptz, inventory_gpu_hours double, ledger_gpu_hours double
-- Reads: asset, ledger_hour
-- Units: GPU-hours
-- Ignores: hours that were never built, and the part of the newest hour that has not passed yet.
-- Order: pool, hour_at
with built as (
    select hour_at, max(until_at) as until_at
    from state_span
    where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz
    group by hour_at
),

dated as (
    select *, least(until_at, lead(from_at) over (partition by gpu_uuid order by from_at)) as ends_at
    from asset
),

inventory as (
    select
        dated.pool,
        built.hour_at,
        sum(
            greatest(0, epoch(least(dated.ends_at, built.until_at) - greatest(dated.from_at, built.hour_at))) / 3600
        ) as gpu_hours
    from built
    inner join dated
        on dated.status <> 'returned' and dated.from_at < built.until_at and coalesce(dated.ends_at > built.hour_at, true)
    group by all
),

ledger as (
    select pool, hour_at, sum(gpu_hours) as gpu_hours
    from ledger_hour
    where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz
    group by all
),

compared as (
    select
        coalesce(inventory.pool, ledger.pool) as pool,
        coalesce(inventory.hour_at, ledger.hour_at) as hour_at,
        coalesce(inventory.gpu_hours, 0) as inventory_gpu_hours,
        coalesce(ledger.gpu_hours, 0) as ledger_gpu_hours
    from inventory
    full outer join ledger on inventory.pool = ledger.pool and inventory.hour_at = ledger.hour_at
)

select pool, hour_at, inventory_gpu_hours, ledger_gpu_hours
from compared
where abs(inventory_gpu_hours - ledger_gpu_hours) > 1e-6 * greatest(1, inventory_gpu_hours)
order by pool, hour_at;
