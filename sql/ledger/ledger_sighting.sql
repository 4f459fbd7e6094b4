-- name: ledger_sighting(from_at, to_at)!
-- Runs of sightings of one pod on one card or slice, while no scheduler speaks for the card.
-- Grain: one row per gpu_uuid, slice_id, namespace, pod and run; `sighting` numbers them.
-- Reads: holding, source_read, ledger_spoken, ledger_pod
-- Writes: ledger_sighting
-- Units: share of a physical GPU; `weight` is what all pods seen on the slice in the hour add up to
-- Ignores: what other sources see on a slice within ten minutes of one that states the shares of its holders. Up to two missed sightings. A run ends one interval after its last sighting; where the source fails from then on, with its next good read, or one interval after its last failed one: a failed read says nothing of who is there. Where a source does not say how often it looks, nine in ten distances of a pod's sightings within the hour say it; where there are fewer than four, those of the slice in the window; else 60 s. Of a pod that runs in the window and is not seen all along, the sightings nearest to the window count too, however far.
create or replace temp table ledger_sighting as
with stated as (
    select distinct gpu_uuid, slice_id, unnest(range(epoch_us(ts) // 600000000 - 1, epoch_us(ts) // 600000000 + 2)) as moment
    from holding
    where is_stated and ts between :from_at::timestamptz - interval 1 day and :to_at::timestamptz
),

looked as (
    select gpu_uuid, slice_id, namespace, pod, node, source, ts, share, interval_seconds, coalesce(is_stated, false) as is_stated
    from holding
    anti join stated
        on
            not coalesce(holding.is_stated, false)
            and holding.gpu_uuid = stated.gpu_uuid
            and holding.slice_id = stated.slice_id
            and epoch_us(holding.ts) // 600000000 = stated.moment
    anti join ledger_spoken as spoken
        on holding.gpu_uuid = spoken.gpu_uuid and holding.ts >= spoken.from_at and holding.ts < spoken.until_at
    where
        ts between :from_at::timestamptz - interval 1 day and :to_at::timestamptz
        and share > 0
),

near as (
    select
        gpu_uuid,
        slice_id,
        namespace,
        pod,
        any_value(node) as node,
        arg_max(source, ts) as source,
        bool_or(interval_seconds is null) as is_silent,
        min(interval_seconds) as shortest_seconds,
        max(interval_seconds) as longest_seconds,
        min(share) as share,
        bool_or(is_stated) as is_stated,
        min(ts) as first_at,
        max(ts) as last_at
    from looked
    group by gpu_uuid, slice_id, namespace, pod
),

-- Pods that run in the window and are not seen from its begin, or not to its end.
missed as (
    select known.namespace, known.pod, known.begun_at, known.known_until_at
    from ledger_pod as known
    left join (select namespace, pod, min(first_at) as first_at, max(last_at) as last_at from near group by all) as seen
        on known.namespace = seen.namespace and known.pod = seen.pod
    where
        known.known_until_at > :from_at::timestamptz
        and (
            seen.pod is null
            or seen.first_at > greatest(known.begun_at, :from_at::timestamptz) + interval 10 minute
            or seen.last_at < least(known.known_until_at, :to_at::timestamptz) - interval 10 minute
        )
),

spanned as (select min(begun_at) as first_at, max(known_until_at) as last_at from missed),

beyond as (
    select holding.gpu_uuid, holding.slice_id
    from holding
    inner join missed
        on
            holding.namespace = missed.namespace
            and holding.pod = missed.pod
            and holding.ts >= missed.begun_at
            and holding.ts <= missed.known_until_at
    where
        (holding.ts < :from_at::timestamptz - interval 1 day or holding.ts > :to_at::timestamptz)
        and holding.ts >= (select first_at from spanned)
        and holding.ts <= (select last_at from spanned)
    group by all
),

-- First and last of each pod on their slices, on either side of the window.
far as (
    select
        gpu_uuid,
        slice_id,
        namespace,
        pod,
        any_value(node) as node,
        arg_max(source, ts) as source,
        max(interval_seconds) as interval_seconds,
        min(share) as share,
        bool_or(coalesce(is_stated, false)) as is_stated,
        unnest(list_distinct([min(ts), max(ts)])) as ts
    from holding
    semi join beyond using (gpu_uuid, slice_id)
    where
        (ts < :from_at::timestamptz - interval 1 day or ts > :to_at::timestamptz)
        and ts >= (select first_at from spanned)
        and ts <= (select last_at from spanned)
        and share > 0
    group by gpu_uuid, slice_id, namespace, pod, ts > :to_at::timestamptz
),

-- Pods on slices as numbers: sorting by them is cheap.
holders as (
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
            any_value(source) as source,
            bool_or(is_silent) or min(shortest_seconds) < max(longest_seconds) as is_paced,
            max(longest_seconds) as longest_seconds,
            min(share) as share,
            bool_or(is_stated) as is_stated
        from (
            select gpu_uuid, slice_id, namespace, pod, node, source, is_silent, shortest_seconds, longest_seconds, share, is_stated from near
            union all by name
            select gpu_uuid, slice_id, namespace, pod, node, source, false as is_silent, interval_seconds as shortest_seconds, interval_seconds as longest_seconds, share, is_stated from far
        )
        group by gpu_uuid, slice_id, namespace, pod
    )
),

seen as (
    select holders.holder, looked.ts, looked.share
    from looked
    inner join holders using (gpu_uuid, slice_id, namespace, pod)
    union all
    select holders.holder, far.ts, far.share
    from far
    inner join holders using (gpu_uuid, slice_id, namespace, pod)
),

distances as (
    select
        holders.holder,
        holders.slice,
        looked.source,
        epoch_us(looked.ts) // 3600000000 as hour,
        epoch(looked.ts - lag(looked.ts) over (partition by holders.holder, looked.source order by looked.ts)) as seconds
    from looked
    inner join holders using (gpu_uuid, slice_id, namespace, pod)
    where looked.interval_seconds is null
),

usual as (
    select slice, source, greatest(quantile_disc(seconds, 0.9), 1) as seconds
    from distances
    group by slice, source
),

hourly as (
    select slice, source, hour, greatest(quantile_disc(seconds, 0.9), 1) as seconds
    from distances
    group by slice, source, hour
    having count(seconds) >= 4
),

paces as (
    select holder, hour, max(seconds) as interval_seconds
    from (
        select asked.holder, asked.hour, coalesce(hourly.seconds, usual.seconds, 60) as seconds
        from (select distinct holder, slice, source, hour from distances) as asked
        left join hourly using (slice, source, hour)
        left join usual using (slice, source)
        union all
        select holders.holder, epoch_us(looked.ts) // 3600000000, max(looked.interval_seconds)
        from looked
        inner join holders using (gpu_uuid, slice_id, namespace, pod)
        where holders.is_paced and looked.interval_seconds is not null
        group by all
    )
    group by holder, hour
),

-- Where a source looks more often from now on, or less, the hours beside it are those of either.
patience as (
    select
        *,
        max(interval_seconds) over (partition by holder order by hour range between 1 preceding and 1 following) as longest_seconds
    from paces
),

-- A card whose every sighting is of the whole of it is nobody else's at that instant. Time-slicing divides a slice
-- equally: whoever is seen on it, the shares add up to the same. Other shares are left as they are, and so are those
-- that a source stated.
weights as (
    select slice, hour, max(weight) as weight, max(weight) - min(weight) < 1e-6 and not bool_or(is_stated) as is_divided
    from (
        select holders.slice, epoch_us(seen.ts) // 3600000000 as hour, sum(seen.share) as weight, bool_or(holders.is_stated) as is_stated
        from seen
        inner join (select holder, slice, is_stated, min(share) over (partition by slice) as least_share from holders) as holders using (holder)
        where holders.least_share < 1
        group by holders.slice, seen.ts
    )
    group by slice, hour
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

-- Few sightings can begin a run: only those are looked at closely.
suspects as (
    select
        stepped.*,
        holders.slice,
        coalesce(holders.longest_seconds, 60) as stated_seconds,
        epoch_us(stepped.ts) // 3600000000 as hour,
        epoch_us(stepped.previous_at) // 3600000000 as previous_hour
    from stepped
    inner join holders using (holder)
    where
        stepped.previous_at is null
        or stepped.share <> stepped.previous_share
        or epoch_us(stepped.previous_at) // 3600000000 <> epoch_us(stepped.ts) // 3600000000
        or epoch_us(stepped.ts) - epoch_us(stepped.previous_at) > (
            select 3500000 * least(min(seconds), 60)
            from (
                select min(interval_seconds) as seconds from patience
                union all
                select min(longest_seconds) from holders where not is_paced
            )
        )
),

starts as (
    select
        suspects.holder,
        suspects.ts,
        suspects.previous_at,
        suspects.share,
        coalesce(now.weight, 1) as weight,
        coalesce(now.is_divided, true) as is_divided
    from suspects
    left join patience using (holder, hour)
    left join patience as before on suspects.holder = before.holder and suspects.previous_hour = before.hour
    left join weights as now on suspects.slice = now.slice and suspects.hour = now.hour
    left join weights as last on suspects.slice = last.slice and suspects.previous_hour = last.hour
    where
        suspects.previous_at is null
        or epoch(suspects.ts - suspects.previous_at) > 3.5 * coalesce(greatest(patience.longest_seconds, before.longest_seconds), suspects.stated_seconds)
        or (not coalesce(now.is_divided, true) and suspects.share <> suspects.previous_share)
        or now.is_divided is distinct from last.is_divided
        or (now.is_divided and abs(now.weight - last.weight) > 1e-6)
),

runs as (
    select
        starts.* exclude (previous_at, ts),
        starts.ts as from_at,
        lead(starts.ts) over of_holder as next_at,
        coalesce(lead(starts.previous_at) over of_holder, ends.last_at) as last_at
    from starts
    inner join (select holder, max(ts) as last_at from seen group by holder) as ends using (holder)
    window of_holder as (partition by starts.holder order by starts.ts)
),

failed as (
    select node, source, ts, interval_seconds
    from source_read
    where not ok and ts between :from_at::timestamptz - interval 1 day and :to_at::timestamptz
),

answered as (
    select node, source, ts
    from source_read
    semi join failed using (node, source)
    where ok and ts between :from_at::timestamptz - interval 1 day and :to_at::timestamptz
),

-- Stretches in which a source did not answer, to its next answer.
outages as (
    select
        node,
        source,
        min(ts) as from_at,
        coalesce(any_value(answered_at), max(ts + to_seconds(coalesce(interval_seconds, 60)))) as until_at
    from (
        select failed.*, answered.ts as answered_at
        from failed
        asof left join answered
            on failed.node = answered.node and failed.source = answered.source and failed.ts < answered.ts
    )
    group by node, source, answered_at
),

-- A page that speaks for all nodes is read under a name of its own.
single as (
    select source, any_value(node) as reader
    from source_read
    semi join outages using (source)
    where ts between :from_at::timestamptz - interval 1 day and :to_at::timestamptz
    group by source
    having count(distinct node) = 1
),

paced as (
    select
        runs.*,
        holders.node,
        holders.source,
        coalesce(patience.interval_seconds, holders.longest_seconds, 60) as interval_seconds
    from runs
    inner join holders using (holder)
    left join patience on runs.holder = patience.holder and patience.hour = epoch_us(runs.last_at) // 3600000000
),

unanswered as (
    select paced.holder, paced.from_at, max(outages.until_at) as until_at
    from paced
    left join single using (source)
    inner join outages
        on
            paced.source = outages.source
            and outages.node in (paced.node, single.reader)
            and outages.from_at > paced.last_at
            and outages.from_at <= paced.last_at + to_seconds(3.5 * paced.interval_seconds)
    group by all
)

select
    row_number() over (order by holder, paced.from_at)::integer as sighting,
    holders.gpu_uuid,
    holders.slice_id,
    holders.namespace,
    holders.pod,
    holders.node,
    paced.from_at,
    paced.last_at,
    paced.interval_seconds,
    least(greatest(paced.last_at + to_seconds(paced.interval_seconds), unanswered.until_at), paced.next_at) as until_at,
    paced.share,
    paced.weight,
    paced.is_divided,
    holders.is_stated
from paced
inner join holders using (holder)
left join unanswered using (holder, from_at);
