-- name: ledger_series(bucket, timezone, tenant, from_at, to_at)
-- GPU-hours by state over time, in hours or in days of a time zone.
-- Grain: one row per bucket and state.
-- Columns: bucket_at timestamptz, state varchar, gpu_hours double
-- Reads: ledger_hour
-- Units: GPU-hours
-- Ignores: with a tenant given, every share that this tenant did not hold.
-- Order: bucket_at, state
with hours as (
    select
        case
            when :bucket = 'day' then timezone(:timezone, date_trunc('day', timezone(:timezone, hour_at)))
            else hour_at
        end as bucket_at,
        state,
        gpu_hours
    from ledger_hour
    where
        hour_at > :from_at::timestamptz - interval 1 hour
        and hour_at < :to_at::timestamptz
        and (:tenant = '' or tenant = :tenant)
)

select bucket_at, state, sum(gpu_hours) as gpu_hours
from hours
group by bucket_at, state
order by bucket_at, state;
