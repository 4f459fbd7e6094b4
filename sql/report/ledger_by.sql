-- name: ledger_by(by, from_at, to_at)
-- GPU-hours by state and by one dimension: tenant, node, model, state, pool, stage, kind or workload.
-- Grain: one row per value of the dimension and state.
-- Columns: key varchar, state varchar, gpu_hours double, provisional_gpu_hours double
-- Reads: ledger_hour
-- Units: GPU-hours
-- Ignores: nothing. Shares that nobody held have an empty tenant, stage, kind and workload.
-- Order: key, state
with hours as (
    select
        case :by
            when 'tenant' then tenant
            when 'node' then node
            when 'model' then model
            when 'state' then state
            when 'pool' then pool
            when 'stage' then stage
            when 'kind' then kind
            when 'workload' then workload_id
        end as key,
        state,
        gpu_hours,
        is_provisional
    from ledger_hour
    where hour_at > :from_at::timestamptz - interval 1 hour and hour_at < :to_at::timestamptz
)

select
    key,
    state,
    sum(gpu_hours) as gpu_hours,
    coalesce(sum(gpu_hours) filter (where is_provisional), 0) as provisional_gpu_hours
from hours
group by key, state
order by key, state;
