-- name: unused_quota(at)
-- How much quota nobody uses at an instant, and how much of it could really be had.
-- Grain: one row per scheduler with a quota.
-- Columns: scheduler varchar, capacity_gpus double, usable_gpus double, free_gpus double, quota_gpus double,
--   unlimited_queue_count bigint, unreported_queue_count bigint, oversubscription_ratio double, used_gpus double,
--   unused_quota_gpus double, promisable_gpus double
-- Reads: quota, queue, queue_state, node_state
-- Units: whole GPUs; the ratio is the sum of quotas by usable GPUs; NULL where the scheduler told of no node
-- Ignores: queues without a limit (counted beside) and with nothing but a limit (of a user, a namespace), quotas above others (a
--   parent's holds its children's, but for a Kueue cohort, whose own quota is added), slices and shares of cards.
--   `promisable_gpus` is the lesser of what is unused and what is free.
-- Order: scheduler
with quotas as (
    select quota.queue, quota.nominal_gpus, quota.limit_gpus, quota.not_reported, coalesce(queue.scheduler, 'default') as scheduler, queue.parent
    from quota
    left join queue using (queue)
    where quota.from_at <= :at::timestamptz and coalesce(quota.until_at > :at::timestamptz, true)
    qualify row_number() over (partition by quota.queue, quota.flavor order by quota.from_at desc) = 1
),

above as (select distinct parent as queue from quotas where parent is not null and nominal_gpus is not null and scheduler <> 'kueue' and not starts_with(scheduler, 'kueue/')),

by_queue as (
    select
        scheduler,
        queue,
        case when bool_and(nominal_gpus is not null) then sum(nominal_gpus) end as nominal_gpus,
        bool_or(nominal_gpus is null and limit_gpus is null and not list_contains(string_split(not_reported, '|'), 'nominal_gpus')) as is_unlimited,
        bool_or(list_contains(string_split(not_reported, '|'), 'nominal_gpus')) as is_unreported
    from quotas
    anti join above using (queue)
    group by scheduler, queue
),

states as (
    select queue, running_gpus
    from queue_state
    where ts <= :at::timestamptz and ts + to_microseconds((duration_seconds * 1000000)::bigint) > :at::timestamptz - interval 1 hour
    qualify row_number() over (partition by queue order by ts desc) = 1
),

summed as (
    select
        by_queue.scheduler,
        sum(by_queue.nominal_gpus) as quota_gpus,
        count(*) filter (where by_queue.is_unlimited) as unlimited_queue_count,
        count(*) filter (where by_queue.is_unreported and not by_queue.is_unlimited) as unreported_queue_count,
        sum(states.running_gpus) as used_gpus,
        sum(case when by_queue.nominal_gpus - states.running_gpus is not null then greatest(0, by_queue.nominal_gpus - states.running_gpus) end) as unused_quota_gpus
    from by_queue
    left join states using (queue)
    group by by_queue.scheduler
),

nodes as (
    select scheduler, sum(capacity) as capacity_gpus, sum(coalesce(allocatable, capacity)) as usable_gpus, sum(free) as free_gpus
    from (
        select *
        from node_state
        where
            from_at <= :at::timestamptz
            and coalesce(until_at > :at::timestamptz, true)
            and resource not like '%\_mig\_%' escape '\'
            and resource not like '%\_shared' escape '\'
            and resource not like '%vgpu%'
            and not regexp_matches(resource, 'gpu_?(mem|memory|cores)')
        qualify row_number() over (partition by scheduler, node, resource order by from_at desc) = 1
    )
    group by scheduler
)

select
    summed.scheduler,
    nodes.capacity_gpus,
    nodes.usable_gpus,
    nodes.free_gpus,
    summed.quota_gpus,
    summed.unlimited_queue_count,
    summed.unreported_queue_count,
    summed.quota_gpus / nullif(nodes.usable_gpus, 0) as oversubscription_ratio,
    summed.used_gpus,
    summed.unused_quota_gpus,
    case when summed.unused_quota_gpus - nodes.free_gpus is not null then least(summed.unused_quota_gpus, nodes.free_gpus) end as promisable_gpus
from summed
left join nodes using (scheduler)
order by summed.scheduler;
