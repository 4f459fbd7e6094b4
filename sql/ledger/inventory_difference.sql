-- name: inventory_difference(at)!
-- Compare assets, scheduler and telemetry at one instant; every difference is a row with a name.
-- Grain: one row per kind of difference and card, or node where the sources count only.
-- Reads: asset, scheduler_node, node_state, condition, reading, allocation, pod
-- Writes: inventory_difference
-- Units: GPUs
-- Ignores: cards whose absence a condition or an asset status explains. A card is "in telemetry" when it was read in the hour before. MIG slices under UUIDs of their own on a node whose cards are known. Where several schedulers list a node the one with most cards counts. What a scheduler calls free is compared on nodes of whole cards only; a card works where half of its readings of that hour say 5 % or more.
insert into inventory_difference by name
with listed as (
    select *
    from asset
    where from_at <= :at::timestamptz
    qualify row_number() over (partition by gpu_uuid order by from_at desc) = 1
),

in_service as (
    select *
    from listed
    where
        status = 'in_service'
        and coalesce(until_at > :at::timestamptz, true)
        and not exists (
            select 1
            from condition
            where
                condition.subject in (listed.node, listed.gpu_uuid)
                and condition.condition <> 'spare'
                and condition.from_at <= :at::timestamptz
                and coalesce(condition.until_at > :at::timestamptz, true)
        )
),

scheduled as (
    select node, max(gpu_count) as gpu_count
    from (
        -- A scheduler's later word on a node ends its earlier one.
        select * exclude (until_at), least(until_at, lead(from_at) over (partition by scheduler, node order by from_at)) as until_at
        from scheduler_node
    )
    where from_at <= :at::timestamptz and coalesce(until_at > :at::timestamptz, true)
    group by node
),

last_scheduled as (select node, max(until_at) as until_at from scheduler_node group by node),

heard as (
    select gpu_uuid, any_value(node) as node, max(ts) as last_at
    from reading
    where ts > :at::timestamptz - interval 1 hour and ts <= :at::timestamptz
    group by gpu_uuid
),

held as (
    select gpu_uuid, any_value(node) as node, sum(share) as share, min(started_at) as from_at
    from allocation
    where
        gpu_uuid is not null
        and started_at <= :at::timestamptz
        and coalesce(ended_at > :at::timestamptz, true)
    group by gpu_uuid
),

offered as (
    select
        node,
        max(capacity) as capacity,
        max(allocated) as allocated,
        max(from_at) as from_at,
        bool_and(
            resource not like '%\_mig\_%' escape '\'
            and resource not like '%\_shared' escape '\'
            and resource not like '%vgpu%'
            and not regexp_matches(resource, 'gpu_?(mem|memory|cores)')
        ) as is_whole
    from (
        select *
        from node_state
        where from_at <= :at::timestamptz and coalesce(until_at > :at::timestamptz, true) and capacity > 0
        qualify row_number() over (partition by scheduler, node, resource order by from_at desc) = 1
    )
    group by node
    having count(distinct resource) = 1
),

working as (
    select node, count(*) as gpu_count
    from (
        select gpu_uuid, any_value(node) as node
        from reading
        where
            ts > :at::timestamptz - interval 1 hour
            and ts <= :at::timestamptz
            and slice_id = ''
            and greatest(gpu_util_ratio, sm_active_ratio, gr_engine_active_ratio) is not null
        group by gpu_uuid
        having avg((greatest(gpu_util_ratio, sm_active_ratio, gr_engine_active_ratio) >= 0.05)::integer) >= 0.5
    )
    group by node
),

asking as (
    select pod.node, sum(pod.gpu_count) as gpu_count, min(pod.started_at) as from_at
    from pod
    inner join offered using (node)
    where
        offered.is_whole
        and pod.gpu_count > 0
        and pod.started_at <= :at::timestamptz
        and pod.resource not like '%\_mig\_%' escape '\'
        and pod.resource not like '%\_shared' escape '\'
        and coalesce(pod.phase not in ('Succeeded', 'Failed'), true)
        and coalesce(pod.ended_at > :at::timestamptz, pod.seen_at + interval 15 minute > :at::timestamptz)
    group by pod.node
),

differences as (
    select
        'not_in_scheduler' as kind,
        in_service.gpu_uuid as subject,
        in_service.node,
        1.0 as gpu_count,
        coalesce(last_scheduled.until_at, in_service.from_at) as from_at,
        'an asset in service whose node no scheduler lists' as detail
    from in_service
    left join last_scheduled using (node)
    where in_service.node not in (select node from scheduled) and exists (select 1 from scheduler_node)
    union all
    select
        'not_in_telemetry',
        in_service.gpu_uuid,
        in_service.node,
        1.0,
        in_service.from_at,
        'an asset in service that no source has shown for an hour'
    from in_service
    where in_service.gpu_uuid not in (select gpu_uuid from heard) and exists (select 1 from heard)
    union all
    select 'not_in_assets', heard.gpu_uuid, heard.node, 1.0, heard.last_at, 'a card that reports but is on no assets list'
    from heard
    where heard.gpu_uuid not in (select gpu_uuid from listed where status <> 'returned') and not starts_with(heard.gpu_uuid, 'MIG-')
    union all
    select
        'not_in_assets',
        heard.node as subject,
        heard.node,
        1.0,
        max(heard.last_at),
        count(*) || ' MIG slices report under UUIDs of their own, and nothing names their cards, of which there is at least one'
    from heard
    where
        starts_with(heard.gpu_uuid, 'MIG-')
        and heard.node not in (select listed.node from listed where listed.status <> 'returned')
        and heard.node not in (select others.node from heard as others where not starts_with(others.gpu_uuid, 'MIG-'))
    group by heard.node
    union all
    select
        'scheduler_count',
        scheduled.node as subject,
        scheduled.node,
        scheduled.gpu_count - coalesce(counted.gpu_count, 0),
        :at::timestamptz,
        'the scheduler counts ' || scheduled.gpu_count || ' GPUs, the assets list ' || coalesce(counted.gpu_count, 0)
    from scheduled
    left join (
        select node, count(*) as gpu_count
        from listed
        where status <> 'returned'
        group by node
    ) as counted using (node)
    where scheduled.gpu_count <> coalesce(counted.gpu_count, 0)
    union all
    select
        'oversubscribed',
        held.gpu_uuid,
        held.node,
        held.share - 1,
        held.from_at,
        'allocations add up to ' || round(held.share, 3) || ' of one card'
    from held
    where held.share > 1 + 1e-6
    union all
    select
        'over_capacity',
        asking.node as subject,
        asking.node,
        asking.gpu_count - offered.capacity,
        asking.from_at,
        'pods ask for ' || asking.gpu_count || ' GPUs of the ' || offered.capacity || ' that the scheduler counts there'
    from asking
    inner join offered using (node)
    where asking.gpu_count > offered.capacity
    union all
    select
        'busy_while_free',
        working.node as subject,
        working.node,
        working.gpu_count - offered.allocated,
        offered.from_at,
        working.gpu_count || ' cards work, of which the scheduler gave away ' || offered.allocated
    from working
    inner join offered using (node)
    where offered.is_whole and working.gpu_count > offered.allocated
)

select kind, subject, node, gpu_count, from_at, :at::timestamptz as until_at, detail
from differences;
