-- name: quality_metric(from_at, to_at)!
-- Write which metrics are gone that a source had before, and which it never had although they would say more.
-- Grain: `vanished_metric`: one row per hour, source, card and metric; `missing_metric`: per hour, source, node and metric.
-- Reads: reading_hour
-- Writes: quality
-- Units: `vanished_metric`: readings without it; `missing_metric`: cards without it
-- Ignores: metrics that another source gives of the card in the hour. What a source had is asked of the three days before.
insert into quality by name
with cards as (
    select
        hour_at,
        source,
        gpu_uuid,
        any_value(node) as node,
        sum(reading_count)::bigint as reading_count,
        unnest([
            {'metric': 'gpu_util_ratio', 'present': sum(gpu_util_count), 'is_wanted': false},
            {'metric': 'sm_active_ratio', 'present': sum(sm_active_count), 'is_wanted': true},
            {'metric': 'tensor_active_ratio', 'present': sum(tensor_active_count), 'is_wanted': false},
            {'metric': 'dram_active_ratio', 'present': sum(dram_active_count), 'is_wanted': false},
            {'metric': 'fb_used_bytes', 'present': sum(fb_used_count), 'is_wanted': true},
            {'metric': 'power_watts', 'present': sum(power_count), 'is_wanted': true},
            {'metric': 'nvlink_bytes_per_second', 'present': sum(nvlink_count), 'is_wanted': false},
            {'metric': 'energy_joules', 'present': sum(energy_count), 'is_wanted': false}
        ], recursive := true)
    from reading_hour
    where hour_at >= :from_at::timestamptz - interval 3 day and hour_at < :to_at::timestamptz
    group by hour_at, source, gpu_uuid
),

compared as (
    select
        *,
        max(present) over (
            partition by source, gpu_uuid, metric
            order by hour_at
            range between interval 3 day preceding and interval 1 hour preceding
        ) as before,
        max(present) over (partition by gpu_uuid, metric, hour_at) as anywhere
    from cards
),

lacking as (
    select *, coalesce(before, 0) > 0 as is_vanished
    from compared
    where present = 0 and anywhere = 0 and hour_at >= :from_at::timestamptz
)

select
    hour_at,
    source,
    'gpu' as subject_kind,
    gpu_uuid as subject,
    'vanished_metric' as kind,
    metric as detail,
    reading_count as count,
    null::double as value
from lacking
where is_vanished
union all
select hour_at, source, 'node', node, 'missing_metric', metric, count(*), null
from lacking
where not is_vanished and is_wanted
group by hour_at, source, node, metric;
