-- name: quality_inventory(from_at, to_at)!
-- Write which nodes of the inventory, or of a scheduler's list, no source has ever shown, and whose pods no source names.
-- Grain: one row per hour, node and kind.
-- Reads: asset, scheduler_node, reading_hour, reading, source_read, pod, holding, allocation
-- Writes: quality
-- Units: `never_seen`: cards in service, or GPUs that a scheduler lists; `missing_pod_labels`: pods with GPUs
-- Ignores: fleets that nothing has ever been read of (a trace), cards that were shown under another name of their node, and pods on nodes whose allocations a scheduler tells.
insert into quality by name
with hours as (
    select
        hour_at,
        least(hour_at + interval 1 hour, :to_at::timestamptz) as ends_at
    from (select unnest(generate_series(:from_at::timestamptz, :to_at::timestamptz - interval 1 microsecond, interval 1 hour)) as hour_at)
),

-- What was read after the window's end is not counted yet, but it was read: a node that is new now is not "never seen".
shown as (
    select node, min(hour_at) as first_at
    from reading_hour
    group by node
    union all
    select node, min(ts)
    from source_read
    where ts < :to_at::timestamptz and ok and device_count > 0
    group by node
    union all
    select node, :to_at::timestamptz - interval 1 microsecond
    from reading
    where ts >= :to_at::timestamptz and ts < :to_at::timestamptz + interval 1 hour
    group by node
),

shown_cards as (select gpu_uuid, min(hour_at) as first_at from reading_hour group by gpu_uuid),

-- An inferred asset is there because something showed it: telemetry, which shows its card, or a scheduler's allocation.
in_service as (
    select
        hours.hour_at,
        hours.ends_at,
        asset.node,
        count(distinct asset.gpu_uuid) as gpu_count,
        case when bool_and(asset.origin = 'inferred') then 'scheduler' else '' end as source
    from hours
    inner join asset
        on asset.from_at < hours.ends_at and coalesce(asset.until_at > hours.hour_at, true) and asset.status = 'in_service'
    left join shown_cards on asset.gpu_uuid = shown_cards.gpu_uuid and shown_cards.first_at < hours.ends_at
    where shown_cards.gpu_uuid is null
    group by hours.hour_at, hours.ends_at, asset.node
),

listed as (
    select hours.hour_at, hours.ends_at, offered.node, max(offered.gpu_count) as gpu_count, 'scheduler' as source
    from hours
    inner join (
        -- A scheduler's later word on a node ends its earlier one.
        select * exclude (until_at), least(until_at, lead(from_at) over (partition by scheduler, node order by from_at)) as until_at
        from scheduler_node
    ) as offered
        on offered.from_at < hours.ends_at and coalesce(offered.until_at > hours.hour_at, true) and offered.gpu_count > 0
    anti join in_service on hours.hour_at = in_service.hour_at and offered.node = in_service.node
    group by hours.hour_at, hours.ends_at, offered.node
),

expected as (
    select * from in_service
    union all by name
    select * from listed
),

running as (
    select hours.hour_at, hours.ends_at, pod.node, count(*) as pod_count
    from hours
    inner join pod
        on
            pod.gpu_count > 0
            and pod.node is not null
            and pod.started_at < hours.ends_at
            and coalesce(pod.ended_at > hours.hour_at, pod.seen_at > hours.hour_at)
    where pod.node not in (select node from allocation)
    group by all
),

-- The command line and the driver's library know processes, not pods: only the others could name them.
naming as (
    select hour_at, node, min(source) as source
    from reading_hour
    where
        hour_at >= :from_at::timestamptz
        and hour_at < :to_at::timestamptz
        and source not in ('nvml', 'nvidia_smi')
    group by hour_at, node
)

select
    expected.hour_at,
    expected.source,
    'node' as subject_kind,
    expected.node as subject,
    'never_seen' as kind,
    '' as detail,
    expected.gpu_count as count,
    null::double as value
from expected
where
    exists (select 1 from reading_hour)
    and expected.node not in (select node from shown where first_at < expected.ends_at)
union all
select running.hour_at, naming.source, 'node', running.node, 'missing_pod_labels', '', running.pod_count, null
from running
inner join naming using (hour_at, node)
where not exists (
    select 1
    from holding
    where holding.node = running.node and holding.ts >= running.hour_at and holding.ts < running.ends_at
);
