-- name: quota_hourly(from_at, to_at, outage_from_ats, outage_until_ats)
-- What each queue was entitled to, ran and waited for in each hour, integrated by overlap with the window.
-- Grain: one row per queue and hour with a recorded state
-- Columns: queue varchar, tenant varchar, hour_at timestamptz, covered_hours double, nominal_known_hours double,
--   demand_known_hours double, nominal_gpu_hours double, running_gpu_hours double, running_with_nominal_gpu_hours double,
--   pending_gpu_hours double, demand_gpu_hours double, idle_gpu_hours double, idle_quota_gpu_hours double,
--   outage_gpu_hours double, unmet_gpu_hours double, max_demand_gpus double
-- Reads: queue_state, quota, queue
-- Units: GPU-hours; hours for the three covers; GPUs for `max_demand_gpus`, NULL where demand was never known
-- Ignores: queues above others that have states (their quota is that of those below); time without a state; where a state
--   names no nominal and no quota was in force, or one of its flavors is
--   unlimited or not reported, idle and unmet are unknown and left out, which `nominal_known_hours` tells; where what
--   waits was not reported, so is demand, which `demand_known_hours` tells; outages (disjoint, as two lists) only in
--   `idle_quota_gpu_hours`
-- Order: by queue, hour_at
with queues_with_a_state as (
    select distinct queue
    from queue_state
    where
        ts < :to_at::timestamptz
        and ts + to_microseconds((duration_seconds * 1000000)::bigint) > :from_at::timestamptz
),

queues_above_others as (
    select distinct queue.parent as queue
    from queue
    semi join queues_with_a_state on queue.queue = queues_with_a_state.queue
    where queue.parent is not null
),

states_in_the_window as (
    select
        queue,
        tenant,
        nominal_gpus,
        running_gpus,
        pending_gpus,
        greatest(ts, :from_at::timestamptz) as from_at,
        least(ts + to_microseconds((duration_seconds * 1000000)::bigint), :to_at::timestamptz) as until_at
    from queue_state
    anti join queues_above_others on queue_state.queue = queues_above_others.queue
    where
        ts < :to_at::timestamptz
        and ts + to_microseconds((duration_seconds * 1000000)::bigint) > :from_at::timestamptz
),

instants_at_which_a_quota_may_change as (
    select distinct
        queue,
        :from_at::timestamptz as edge_at
    from states_in_the_window
    union
    select
        queue,
        from_at
    from quota
    where from_at > :from_at::timestamptz and from_at < :to_at::timestamptz
    union
    select
        queue,
        until_at
    from quota
    where until_at > :from_at::timestamptz and until_at < :to_at::timestamptz
),

spans_of_constant_quota as (
    select
        queue,
        edge_at as from_at,
        lead(edge_at, 1, :to_at::timestamptz) over (partition by queue order by edge_at) as until_at
    from instants_at_which_a_quota_may_change
),

quota_of_each_flavor as (
    select
        spans_of_constant_quota.queue,
        spans_of_constant_quota.from_at,
        quota.flavor,
        arg_max_null(quota.nominal_gpus, quota.from_at) as nominal_gpus
    from spans_of_constant_quota
    inner join quota
        on
            spans_of_constant_quota.queue = quota.queue
            and quota.from_at <= spans_of_constant_quota.from_at
            and (quota.until_at is null or quota.until_at > spans_of_constant_quota.from_at)
    group by all
),

quota_of_all_flavors as (
    select
        queue,
        from_at,
        case when bool_and(nominal_gpus is not null) then sum(nominal_gpus) end as nominal_gpus
    from quota_of_each_flavor
    group by all
),

states_under_one_quota as (
    select
        states_in_the_window.queue,
        states_in_the_window.tenant,
        states_in_the_window.running_gpus,
        states_in_the_window.pending_gpus,
        coalesce(states_in_the_window.nominal_gpus, quota_of_all_flavors.nominal_gpus) as nominal_gpus,
        greatest(states_in_the_window.from_at, spans_of_constant_quota.from_at) as from_at,
        least(states_in_the_window.until_at, spans_of_constant_quota.until_at) as until_at
    from states_in_the_window
    inner join spans_of_constant_quota
        on
            states_in_the_window.queue = spans_of_constant_quota.queue
            and states_in_the_window.from_at < spans_of_constant_quota.until_at
            and states_in_the_window.until_at > spans_of_constant_quota.from_at
    left join quota_of_all_flavors
        on
            spans_of_constant_quota.queue = quota_of_all_flavors.queue
            and spans_of_constant_quota.from_at = quota_of_all_flavors.from_at
),

states_with_each_hour_they_touch as (
    select
        *,
        unnest(generate_series(
            time_bucket(interval 1 hour, from_at), until_at - interval 1 microsecond, interval 1 hour
        )) as hour_at
    from states_under_one_quota
),

states_within_one_hour as (
    select
        queue,
        tenant,
        hour_at,
        nominal_gpus,
        running_gpus,
        running_gpus + pending_gpus as demand_gpus,
        pending_gpus,
        greatest(from_at, hour_at) as from_at,
        least(until_at, hour_at + interval 1 hour) as until_at
    from states_with_each_hour_they_touch
),

states_with_their_length as (
    select
        *,
        date_diff('microsecond', from_at, until_at) / 3600000000 as hours
    from states_within_one_hour
),

outages as (
    select
        unnest(:outage_from_ats::timestamptz[]) as from_at,
        unnest(:outage_until_ats::timestamptz[]) as until_at
),

idle_hours_in_outages as (
    select
        states_within_one_hour.queue,
        states_within_one_hour.tenant,
        states_within_one_hour.hour_at,
        sum(
            greatest(0, nominal_gpus - running_gpus) * date_diff(
                'microsecond',
                greatest(states_within_one_hour.from_at, outages.from_at),
                least(states_within_one_hour.until_at, outages.until_at)
            )
        ) / 3600000000 as outage_gpu_hours,
        coalesce(sum(
            greatest(0, nominal_gpus - demand_gpus) * date_diff(
                'microsecond',
                greatest(states_within_one_hour.from_at, outages.from_at),
                least(states_within_one_hour.until_at, outages.until_at)
            )
        ) filter (where demand_gpus is not null), 0) / 3600000000 as unclaimed_gpu_hours
    from states_within_one_hour
    inner join outages
        on states_within_one_hour.from_at < outages.until_at and states_within_one_hour.until_at > outages.from_at
    where nominal_gpus is not null
    group by all
),

sums_of_each_hour as (
    select
        queue,
        tenant,
        hour_at,
        sum(hours) as covered_hours,
        coalesce(sum(hours) filter (where nominal_gpus is not null), 0) as nominal_known_hours,
        coalesce(sum(hours) filter (where demand_gpus is not null), 0) as demand_known_hours,
        coalesce(sum(nominal_gpus * hours), 0) as nominal_gpu_hours,
        sum(running_gpus * hours) as running_gpu_hours,
        coalesce(sum(running_gpus * hours) filter (where nominal_gpus is not null), 0) as running_with_nominal_gpu_hours,
        coalesce(sum(pending_gpus * hours), 0) as pending_gpu_hours,
        coalesce(sum(demand_gpus * hours), 0) as demand_gpu_hours,
        coalesce(sum(greatest(0, nominal_gpus - running_gpus) * hours) filter (where nominal_gpus is not null), 0)
            as idle_gpu_hours,
        coalesce(sum(greatest(0, nominal_gpus - demand_gpus) * hours) filter (where nominal_gpus - demand_gpus is not null), 0)
            as unclaimed_gpu_hours,
        coalesce(sum(greatest(0, demand_gpus - nominal_gpus) * hours) filter (where nominal_gpus - demand_gpus is not null), 0)
            as unmet_gpu_hours,
        max(demand_gpus) as max_demand_gpus
    from states_with_their_length
    group by all
),

hours_with_outages_apart as (
    select
        sums_of_each_hour.*,
        coalesce(idle_hours_in_outages.outage_gpu_hours, 0) as outage_gpu_hours,
        greatest(0, sums_of_each_hour.unclaimed_gpu_hours - coalesce(idle_hours_in_outages.unclaimed_gpu_hours, 0))
            as idle_quota_gpu_hours
    from sums_of_each_hour
    left join idle_hours_in_outages
        on
            sums_of_each_hour.queue = idle_hours_in_outages.queue
            and sums_of_each_hour.tenant = idle_hours_in_outages.tenant
            and sums_of_each_hour.hour_at = idle_hours_in_outages.hour_at
)

select
    queue,
    tenant,
    hour_at,
    covered_hours,
    nominal_known_hours,
    demand_known_hours,
    nominal_gpu_hours,
    running_gpu_hours,
    running_with_nominal_gpu_hours,
    pending_gpu_hours,
    demand_gpu_hours,
    idle_gpu_hours,
    idle_quota_gpu_hours,
    outage_gpu_hours,
    unmet_gpu_hours,
    max_demand_gpus
from hours_with_outages_apart
order by queue, hour_at
