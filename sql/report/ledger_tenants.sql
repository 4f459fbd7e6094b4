-- name: ledger_tenants(from_at, to_at)
-- What each tenant held and what became of it.
-- Grain: one row per tenant; the empty tenant is work that nobody is known to own.
-- Columns: tenant varchar, held_gpu_hours double, productive_gpu_hours double, low_gpu_hours double, ungraded_gpu_hours double, idle_gpu_hours double, stalled_gpu_hours double, unknown_gpu_hours double, standby_gpu_hours double, starting_gpu_hours double, gpu_util_ratio double, sm_active_ratio double
-- Reads: ledger_hour
-- Units: GPU-hours; ratios are weighted by the share-time over which the signal was measured
-- Ignores: shares that nobody held.
-- Order: held_gpu_hours, largest first
with held as (
    select *
    from ledger_hour
    where
        hour_at > :from_at::timestamptz - interval 1 hour
        and hour_at < :to_at::timestamptz
        and starts_with(state, 'alloc_')
)

select
    tenant,
    sum(gpu_hours) as held_gpu_hours,
    coalesce(sum(gpu_hours) filter (where state = 'alloc_productive'), 0) as productive_gpu_hours,
    coalesce(sum(gpu_hours) filter (where state = 'alloc_low'), 0) as low_gpu_hours,
    coalesce(sum(gpu_hours) filter (where state = 'alloc_ungraded'), 0) as ungraded_gpu_hours,
    coalesce(sum(gpu_hours) filter (where state = 'alloc_idle'), 0) as idle_gpu_hours,
    coalesce(sum(gpu_hours) filter (where state = 'alloc_stalled'), 0) as stalled_gpu_hours,
    coalesce(sum(gpu_hours) filter (where state = 'alloc_unknown'), 0) as unknown_gpu_hours,
    coalesce(sum(gpu_hours) filter (where state = 'alloc_standby'), 0) as standby_gpu_hours,
    coalesce(sum(gpu_hours) filter (where state = 'alloc_starting'), 0) as starting_gpu_hours,
    sum(gpu_util_gpu_hours) / nullif(sum(gpu_util_observed_gpu_hours), 0) as gpu_util_ratio,
    sum(sm_active_gpu_hours) / nullif(sum(sm_active_observed_gpu_hours), 0) as sm_active_ratio
from held
group by tenant
order by held_gpu_hours desc, tenant;
