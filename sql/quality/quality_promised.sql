-- name: quality_promised(from_at, to_at)!
-- Write where a scheduler's quotas add up to more GPUs than its nodes can give away, as of the end of each hour.
-- Grain: one row per hour and scheduler.
-- Reads: quota, queue, node_state
-- Writes: quality
-- Units: `value` is the sum of the quotas, in GPUs; `count` is 1
-- Ignores: schedulers that told of no node, and what query `unused_quota` ignores.
insert into quality by name
with hours as (
    select
        hour_at,
        least(hour_at + interval 1 hour, :to_at::timestamptz) - interval 1 microsecond as at
    from (select unnest(generate_series(:from_at::timestamptz, :to_at::timestamptz - interval 1 microsecond, interval 1 hour)) as hour_at)
),

quotas as (
    select hours.hour_at, quota.queue, quota.nominal_gpus, coalesce(queue.scheduler, 'default') as scheduler, queue.parent
    from quota
    inner join hours on quota.from_at <= hours.at and coalesce(quota.until_at > hours.at, true)
    left join queue using (queue)
    where quota.nominal_gpus is not null
    qualify row_number() over (partition by hours.hour_at, quota.queue, quota.flavor order by quota.from_at desc) = 1
),

above as (
    select distinct hour_at, parent as queue
    from quotas
    where parent is not null and scheduler <> 'kueue' and not starts_with(scheduler, 'kueue/')
),

promised as (
    select hour_at, scheduler, sum(nominal_gpus) as quota_gpus
    from quotas
    anti join above using (hour_at, queue)
    group by hour_at, scheduler
),

nodes as (
    select hour_at, scheduler, sum(coalesce(allocatable, capacity)) as usable_gpus
    from (
        select hours.hour_at, node_state.*
        from node_state
        inner join hours on node_state.from_at <= hours.at and coalesce(node_state.until_at > hours.at, true)
        where
            node_state.resource not like '%\_mig\_%' escape '\'
            and node_state.resource not like '%\_shared' escape '\'
            and node_state.resource not like '%vgpu%'
            and not regexp_matches(node_state.resource, 'gpu_?(mem|memory|cores)')
        qualify row_number() over (partition by hours.hour_at, node_state.scheduler, node_state.node, node_state.resource order by node_state.from_at desc) = 1
    )
    group by hour_at, scheduler
)

select
    promised.hour_at,
    promised.scheduler as source,
    'target' as subject_kind,
    promised.scheduler as subject,
    'over_promised' as kind,
    round(nodes.usable_gpus, 3) || ' GPUs can be given away' as detail,
    1 as count,
    promised.quota_gpus as value
from promised
inner join nodes using (hour_at, scheduler)
where promised.quota_gpus > nodes.usable_gpus + 1e-6;
