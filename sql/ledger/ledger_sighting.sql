-- name: ledger_sighting(from_at, to_at)!
-- Runs of sightings of one pod on one card or slice, on nodes for which there are no allocations.
-- Grain: one row per gpu_uuid, slice_id, namespace, pod and run; `sighting` numbers them.
-- Reads: holding, allocation, ledger_device
-- Writes: ledger_sighting
-- Units: share of a physical GPU; `weight` is what all pods seen on the slice add up to
-- Ignores: up to two missed sightings. A run ends one interval after its last sighting. Where a source does not say how often it looks, its readings of the card say it, else the median distance of its sightings, else 60 s.
create or replace temp table ledger_sighting as
with looked as (
    select *
    from holding
    where
        node not in (select node from allocation where gpu_uuid is not null)
        and ts between :from_at::timestamptz - interval 1 day and :to_at::timestamptz
        and share > 0
),

spacings as (
    select gpu_uuid, slice_id, source, greatest(quantile_disc(seconds, 0.5), 1) as interval_seconds
    from (
        select gpu_uuid, slice_id, source, epoch(ts - lag(ts) over (partition by gpu_uuid, slice_id, source order by ts)) as seconds
        from (select distinct gpu_uuid, slice_id, source, ts from looked where interval_seconds is null)
    )
    group by all
),

spaced as (
    select
        looked.* exclude (interval_seconds),
        coalesce(looked.interval_seconds, feed.interval_seconds, spacings.interval_seconds, 60) as interval_seconds
    from looked
    left join ledger_device as feed using (gpu_uuid, slice_id, source)
    left join spacings using (gpu_uuid, slice_id, source)
),

crowds as (
    select gpu_uuid, slice_id, ts, count(*) as pods, sum(share) as weight
    from looked
    group by all
),

-- Time-slicing divides a slice equally: whoever is seen on it, the shares add up to the same. Other shares are left as they are.
slices as (
    select gpu_uuid, slice_id, max(weight) as weight, max(weight) - min(weight) < 1e-6 as is_divided
    from crowds
    group by all
),

stepped as (
    select
        spaced.*,
        slices.weight,
        slices.is_divided,
        crowds.pods,
        case
            when (not slices.is_divided) and (spaced.share is distinct from lag(spaced.share) over of_pod) then 1
            when
                epoch(spaced.ts - lag(spaced.ts) over of_pod)
                > 3.5 * greatest(spaced.interval_seconds, lag(spaced.interval_seconds) over of_pod)
                then 1
            else 0
        end as is_new_run
    from spaced
    inner join slices using (gpu_uuid, slice_id)
    inner join crowds using (gpu_uuid, slice_id, ts)
    window of_pod as (partition by spaced.gpu_uuid, spaced.slice_id, spaced.namespace, spaced.pod order by spaced.ts)
),

runs as (
    select *, sum(is_new_run) over (partition by gpu_uuid, slice_id, namespace, pod order by ts rows unbounded preceding) as run
    from stepped
)

select
    row_number() over (order by gpu_uuid, slice_id, namespace, pod, min(ts))::integer as sighting,
    gpu_uuid,
    slice_id,
    namespace,
    pod,
    any_value(node) as node,
    min(ts) as from_at,
    max(ts) + to_seconds(max(interval_seconds)) as until_at,
    any_value(share) as share,
    any_value(weight) as weight,
    any_value(is_divided) as is_divided,
    max(ts) as last_at,
    count(*) filter (where pods = 1) * 2 > count(*) as is_alone
from runs
group by gpu_uuid, slice_id, namespace, pod, run;
