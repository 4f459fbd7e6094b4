-- name: queue_usage(at)
-- What each queue may use, holds, borrows, lends and waits for at an instant, all of its flavors together.
-- Grain: one row per queue that a scheduler lists, or that has a quota or a state.
-- Columns: scheduler varchar, queue varchar, parent varchar, cohort varchar, tenant varchar, status varchar,
--   nominal_gpus double, nominal_is varchar, limit_gpus double, limit_is varchar, borrowing_limit_gpus double,
--   lending_limit_gpus double, guarantee_gpus double, running_gpus double, borrowed_gpus double, lent_gpus double,
--   reserved_gpus double, pending_gpus double, unused_gpus double, state_at timestamptz
-- Reads: queue, quota, queue_state
-- Units: GPUs; `nominal_is` and `limit_is` say what a NULL means: set, unlimited, not_reported, or none (no quota at all);
--   the other NULLs are "no such limit" of limits, and "not reported" of what is held; `unused_gpus` is nominal less running
-- Ignores: states that are more than an hour old. What is reserved, borrowed and lent is no part of a sum: it is told beside.
-- Order: scheduler, queue
with quotas as (
    select *
    from quota
    where from_at <= :at::timestamptz and coalesce(until_at > :at::timestamptz, true)
    qualify row_number() over (partition by queue, flavor order by from_at desc) = 1
),

limits as (
    select
        queue,
        any_value(tenant) as tenant,
        case when bool_and(nominal_gpus is not null) then sum(nominal_gpus) end as nominal_gpus,
        case when bool_and(limit_gpus is not null) then sum(limit_gpus) end as limit_gpus,
        case when bool_and(borrowing_limit_gpus is not null) then sum(borrowing_limit_gpus) end as borrowing_limit_gpus,
        case when bool_and(lending_limit_gpus is not null) then sum(lending_limit_gpus) end as lending_limit_gpus,
        sum(guarantee_gpus) as guarantee_gpus,
        bool_or(nominal_gpus is null and not list_contains(string_split(not_reported, '|'), 'nominal_gpus')) as has_no_nominal,
        bool_or(limit_gpus is null and not list_contains(string_split(not_reported, '|'), 'limit_gpus')) as has_no_limit
    from quotas
    group by queue
),

states as (
    select *
    from queue_state
    where ts <= :at::timestamptz and ts + to_microseconds((duration_seconds * 1000000)::bigint) > :at::timestamptz - interval 1 hour
    qualify row_number() over (partition by queue order by ts desc) = 1
),

named as (
    select queue from queue where status <> 'closed'
    union
    select queue from limits
    union
    select queue from states
)

select
    coalesce(queue.scheduler, 'default') as scheduler,
    named.queue,
    queue.parent,
    queue.cohort,
    coalesce(queue.tenant, limits.tenant, states.tenant) as tenant,
    coalesce(queue.status, 'unknown') as status,
    limits.nominal_gpus,
    case
        when limits.nominal_gpus is not null then 'set'
        when limits.has_no_nominal then 'unlimited'
        when limits.queue is not null then 'not_reported'
        else 'none'
    end as nominal_is,
    limits.limit_gpus,
    case
        when limits.limit_gpus is not null then 'set'
        when limits.has_no_limit then 'unlimited'
        when limits.queue is not null then 'not_reported'
        else 'none'
    end as limit_is,
    limits.borrowing_limit_gpus,
    limits.lending_limit_gpus,
    limits.guarantee_gpus,
    states.running_gpus,
    states.borrowed_gpus,
    states.lent_gpus,
    states.reserved_gpus,
    states.pending_gpus,
    case when limits.nominal_gpus - states.running_gpus is not null then greatest(0, limits.nominal_gpus - states.running_gpus) end as unused_gpus,
    states.ts as state_at
from named
left join queue using (queue)
left join limits using (queue)
left join states using (queue)
order by scheduler, named.queue;
