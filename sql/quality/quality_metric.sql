-- name: quality_metric(from_at, to_at)!
-- Write which metrics are gone that a source had before, and which it never had although they would say more.
-- Grain: `vanished_metric`: one row per hour, source, card and metric; `missing_metric` and `blank_metric`: per hour, source, node and metric.
-- Reads: reading_hour, vendor_rule
-- Writes: quality
-- Units: `vanished_metric`: readings without it; `missing_metric`, `blank_metric`: cards without it
-- Ignores: metrics that another source gives of the card in the hour, and the counter that the vendor of the card is not graded by; of a card of no known vendor either SM or core activity will do. What a source had is asked of the three days before. Which values were refused is not kept: where each reading of a card had one, a metric without any value may be there and blank.
insert into quality by name
with cards as (
    select
        hour_at,
        source,
        gpu_uuid,
        any_value(node) as node,
        sum(reading_count)::bigint as reading_count,
        sum(rejected_count) >= max(reading_count) as is_blank,
        unnest([
            {'metric': 'gpu_util_ratio', 'present': sum(gpu_util_count), 'is_wanted': false},
            {'metric': 'sm_active_ratio', 'present': sum(sm_active_count), 'is_wanted': false},
            {'metric': 'core_active_ratio', 'present': sum(core_active_count), 'is_wanted': false},
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

given_by_another as (
    select hour_at, gpu_uuid, metric
    from cards
    where present > 0 and hour_at >= :from_at::timestamptz
    group by all
),

-- The counter by which the ledger grades the card's minutes, as the rule of its vendor says.
graded as (
    select
        counted.hour_at,
        counted.gpu_uuid,
        rule.is_graded_by_core as is_core_wanted,
        not rule.is_graded_by_core and (rule.core_idle_below_ratio is null or counted.core_count = 0) as is_sm_wanted
    from (
        select hour_at, gpu_uuid, coalesce(max(vendor), 'other') as vendor, coalesce(sum(core_active_count), 0) as core_count
        from reading_hour
        where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz
        group by hour_at, gpu_uuid
    ) as counted
    inner join vendor_rule as rule using (vendor)
),

had as (
    select source, gpu_uuid, metric, hour_at
    from cards
    where present > 0
),

lacking as (
    select
        card.* replace (case card.metric when 'sm_active_ratio' then graded.is_sm_wanted when 'core_active_ratio' then graded.is_core_wanted else card.is_wanted end as is_wanted),
        exists(
            select 1
            from had
            where
                had.source = card.source
                and had.gpu_uuid = card.gpu_uuid
                and had.metric = card.metric
                and had.hour_at < card.hour_at
                and had.hour_at >= card.hour_at - interval 3 day
        ) as is_vanished
    from cards as card
    anti join given_by_another using (hour_at, gpu_uuid, metric)
    inner join graded using (hour_at, gpu_uuid)
    where card.present = 0 and card.hour_at >= :from_at::timestamptz
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
select
    hour_at,
    source,
    'node',
    node,
    case when is_blank then 'blank_metric' else 'missing_metric' end,
    metric,
    count(*),
    null
from lacking
where not is_vanished and is_wanted
group by hour_at, source, node, metric, is_blank;
