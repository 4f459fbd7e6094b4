-- name: quality_inventory(from_at, to_at)!
-- Write which nodes of the inventory no source has ever shown, and whose pods no source names.
-- Grain: one row per hour, node and kind.
-- Reads: asset, reading_hour, source_read, pod, holding, allocation
-- Writes: quality
-- Units: `never_seen`: cards in service; `missing_pod_labels`: pods with GPUs
-- Ignores: fleets that nothing has ever been read of (a trace), and pods on nodes whose allocations a scheduler tells.
insert into quality by name
with hours as (
    select
        hour_at,
        least(hour_at + interval 1 hour, :to_at::timestamptz) as ends_at
    from (select unnest(generate_series(:from_at::timestamptz, :to_at::timestamptz - interval 1 microsecond, interval 1 hour)) as hour_at)
),

shown as (
    select node, min(hour_at) as first_at
    from reading_hour
    group by node
    union all
    select node, min(ts)
    from source_read
    where ts < :to_at::timestamptz and ok and device_count > 0
    group by node
),

in_service as (
    select hours.hour_at, asset.node, count(distinct asset.gpu_uuid) as gpu_count
    from hours
    inner join asset
        on asset.from_at < hours.ends_at and coalesce(asset.until_at > hours.hour_at, true) and asset.status = 'in_service'
    group by all
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
    in_service.hour_at,
    '' as source,
    'node' as subject_kind,
    in_service.node as subject,
    'never_seen' as kind,
    '' as detail,
    in_service.gpu_count as count,
    null::double as value
from in_service
where
    exists (select 1 from reading_hour)
    and in_service.node not in (select node from shown where first_at < in_service.hour_at + interval 1 hour)
union all
select running.hour_at, naming.source, 'node', running.node, 'missing_pod_labels', '', running.pod_count, null
from running
inner join naming using (hour_at, node)
where not exists (
    select 1
    from holding
    where holding.node = running.node and holding.ts >= running.hour_at and holding.ts < running.ends_at
);
