-- name: ledger_sighting(from_at, to_at)!
-- Runs of sightings of one pod on one card or slice, on nodes for which there are no allocations.
-- Grain: one row per gpu_uuid, slice_id, namespace, pod and run; `sighting` numbers them.
-- Reads: holding, allocation, ledger_device
-- Writes: ledger_sighting
-- Units: share of a physical GPU; `weight` is what all pods seen on the slice add up to
-- Ignores: up to two missed sightings. A run ends one interval after its last sighting. Where a source does not say how often it looks, its readings of the card say it, else the median distance of its sightings, else 60 s.
create or replace temp table ledger_sighting as
with looked as (
    select gpu_uuid, slice_id, namespace, pod, node, source, ts, share, interval_seconds
    from holding
    where
        node not in (select node from allocation where gpu_uuid is not null)
        and ts between :from_at::timestamptz - interval 1 day and :to_at::timestamptz
        and share > 0
),

-- Pods on slices as numbers: sorting by them is cheap.
named as (
    select
        *,
        row_number() over (order by gpu_uuid, slice_id, namespace, pod)::integer as holder,
        dense_rank() over (order by gpu_uuid, slice_id)::integer as slice
    from (
        select
            gpu_uuid,
            slice_id,
            namespace,
            pod,
            any_value(node) as node,
            max(interval_seconds) as interval_seconds,
            bool_or(interval_seconds is null) as is_silent,
            min(share) as share
        from looked
        group by gpu_uuid, slice_id, namespace, pod
    )
),

silent as (select * from looked where interval_seconds is null),

spacings as (
    select gpu_uuid, slice_id, source, greatest(quantile_disc(seconds, 0.5), 1) as interval_seconds
    from (
        select gpu_uuid, slice_id, source, epoch(ts - lag(ts) over (partition by gpu_uuid, slice_id, source order by ts)) as seconds
        from (select distinct gpu_uuid, slice_id, source, ts from silent)
    )
    group by all
),

spaced as (
    select silent.gpu_uuid, silent.slice_id, silent.namespace, silent.pod, max(coalesce(feed.interval_seconds, spacings.interval_seconds, 60)) as interval_seconds
    from (select distinct gpu_uuid, slice_id, namespace, pod, source from silent) as silent
    left join ledger_device as feed using (gpu_uuid, slice_id, source)
    left join spacings using (gpu_uuid, slice_id, source)
    group by all
),

seen as (
    select named.holder, named.slice, looked.ts, looked.share
    from looked
    inner join named using (gpu_uuid, slice_id, namespace, pod)
),

-- A card whose every sighting is of the whole of it is nobody else's at that instant.
crowds as (
    select slice, ts, count(*) as pods, sum(share) as weight
    from seen
    semi join (select slice from named group by slice having min(share) < 1) using (slice)
    group by slice, ts
),

-- Time-slicing divides a slice equally: whoever is seen on it, the shares add up to the same. Other shares are left as they are.
slices as (
    select slice, max(weight) as weight, max(weight) - min(weight) < 1e-6 as is_divided
    from crowds
    group by slice
),

holders as (
    select
        named.* exclude (interval_seconds, share),
        greatest(named.interval_seconds, spaced.interval_seconds) as interval_seconds,
        coalesce(slices.weight, 1) as weight,
        coalesce(slices.is_divided, true) as is_divided
    from named
    left join spaced using (gpu_uuid, slice_id, namespace, pod)
    left join slices using (slice)
),

stepped as (
    select
        holder,
        ts,
        share,
        lag(ts) over of_holder as previous_at,
        lag(share) over of_holder as previous_share
    from seen
    window of_holder as (partition by holder order by ts)
),

starts as (
    select stepped.*
    from stepped
    inner join holders using (holder)
    where
        stepped.previous_at is null
        or epoch(stepped.ts - stepped.previous_at) > 3.5 * holders.interval_seconds
        or (not holders.is_divided and stepped.share <> stepped.previous_share)
),

runs as (
    select
        starts.holder,
        starts.ts as from_at,
        coalesce(lead(starts.previous_at) over (partition by starts.holder order by starts.ts), ends.last_at) as last_at,
        starts.share
    from starts
    inner join (select holder, max(ts) as last_at from seen group by holder) as ends using (holder)
),

crowded as (
    select runs.holder, runs.from_at, count(*) as instants
    from runs
    inner join seen on runs.holder = seen.holder and seen.ts between runs.from_at and runs.last_at
    semi join crowds on seen.slice = crowds.slice and seen.ts = crowds.ts and crowds.pods > 1
    group by all
)

select
    row_number() over (order by holder, runs.from_at)::integer as sighting,
    holders.gpu_uuid,
    holders.slice_id,
    holders.namespace,
    holders.pod,
    holders.node,
    runs.from_at,
    runs.last_at,
    runs.last_at + to_seconds(holders.interval_seconds) as until_at,
    runs.share,
    holders.weight,
    holders.is_divided,
    coalesce(crowded.instants, 0) * 2 < epoch(runs.last_at - runs.from_at) / holders.interval_seconds + 1 as is_alone
from runs
inner join holders using (holder)
left join crowded using (holder, from_at);
