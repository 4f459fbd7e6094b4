-- name: ledger_hour(from_at, to_at, final_before_at)!
-- Sum the window's spans by hour.
-- Grain: one row per hour, card, workload, state, cause and basis.
-- Reads: state_span
-- Writes: ledger_hour
-- Units: GPU-hours; energy in joules, a card's power weighted by the share
-- Ignores: nothing. Hours that end after `final_before_at` are provisional.
insert into ledger_hour by name
select
    hour_at,
    gpu_uuid,
    node,
    pool,
    model,
    tenant,
    queue,
    workload_id,
    stage,
    kind,
    state,
    cause,
    basis,
    sum(gpu_hours) as gpu_hours,
    sum(share * observed_minutes) / 60 as observed_gpu_hours,
    coalesce(sum(gpu_util_ratio * gpu_hours), 0) as gpu_util_gpu_hours,
    coalesce(sum(gpu_hours) filter (where gpu_util_ratio is not null), 0) as gpu_util_observed_gpu_hours,
    coalesce(sum(sm_active_ratio * gpu_hours), 0) as sm_active_gpu_hours,
    coalesce(sum(gpu_hours) filter (where sm_active_ratio is not null), 0) as sm_active_observed_gpu_hours,
    sum(power_watts * gpu_hours * 3600) as energy_joules,
    hour_at + interval 1 hour > :final_before_at::timestamptz as is_provisional
from state_span
where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz
group by all;
