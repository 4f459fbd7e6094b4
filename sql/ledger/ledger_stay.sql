-- name: ledger_stay()!
-- How long each sighted pod held its card: sightings, what the pod's record says beyond them, and the share.
-- Grain: one row per pod, card or slice, and stretch throughout which its share is the same.
-- Reads: ledger_sighting, ledger_pod, ledger_spoken
-- Writes: ledger_stay
-- Units: share of a physical GPU
-- Ignores: sightings outside of the pod's life (labels linger after the containers ended). Gaps between sightings, and before and after them, are bridged as far as the record says that the pod ran: after the last until another takes the slice over, and never on more cards than the pod asks for.
create or replace temp table ledger_stay as
with lived as (
    select seen.*, known.* exclude (namespace, pod, node), coalesce(known.node = seen.node, false) as is_of_node
    from ledger_sighting as seen
    left join ledger_pod as known
        on seen.namespace = known.namespace and seen.pod = known.pod
),

-- Of two clusters with pods of this name the one whose node it is.
clustered as (
    select *, bool_or(is_of_node) over (partition by sighting, cluster) as is_of_cluster
    from lived
),

of_cluster as (
    select *
    from clustered
    qualify dense_rank() over (partition by sighting order by is_of_cluster desc, cluster) = 1
),

-- Of the parts of one job that began together the one on this node.
chosen as (
    select *
    from of_cluster
    qualify row_number() over (partition by sighting, begun_at order by is_of_node desc, coalesce(ended_at > begun_at, true) desc, uid) = 1
),

pieces as (
    select
        * exclude (from_at, until_at),
        coalesce(uid, concat_ws('/', namespace, pod, sighting)) as holder,
        greatest(from_at, term_from_at) as from_at,
        least(until_at, ended_at) as until_at
    from chosen
    where coalesce(from_at < ended_at, true) and coalesce(until_at > term_from_at, true)
),

-- First and last sighting of each pod on the slice.
presences as (
    select
        gpu_uuid,
        slice_id,
        holder,
        min(from_at) as first_at,
        max(least(last_at, until_at)) as last_at,
        max(until_at) as until_at,
        any_value(known_until_at) as known_until_at,
        any_value(uid) as uid,
        bool_or(is_divided) as is_divided,
        bool_or(is_stated) as is_stated
    from pieces
    group by gpu_uuid, slice_id, holder
),

-- Who took the slice over: seen after the pod, and together with it for a moment at most. Of pods that were given parts none takes over another's.
-- Pods that were there together for longer share it; on a slice that is divided, and where both have records that end their labels, even those that were there together once.
neighbours as (
    select
        pod.gpu_uuid,
        pod.slice_id,
        pod.holder,
        min(other.first_at) filter (where other.first_at >= pod.first_at and other.last_at > pod.last_at and other.first_at > pod.last_at - moment.span) as next_at,
        max(greatest(other.until_at, other.known_until_at)) filter (where other.first_at < pod.first_at and other.last_at < pod.first_at + moment.span) as before_until_at
    from presences as pod
    inner join (select gpu_uuid, slice_id, holder, 3.5 * max(interval_seconds) as patience_seconds from pieces where uid is not null group by all) as spaced
        using (gpu_uuid, slice_id, holder)
    inner join presences as other
        on pod.gpu_uuid = other.gpu_uuid and pod.slice_id = other.slice_id and pod.holder <> other.holder and not (pod.is_stated and other.is_stated)
    cross join lateral (
        select to_seconds(case when pod.is_divided and other.uid is not null then 0 else spaced.patience_seconds end) as span
    ) as moment
    group by all
),

ordered as (
    select
        pieces.*,
        neighbours.next_at,
        neighbours.before_until_at,
        lag(pieces.until_at) over of_holder as previous_until_at,
        lead(pieces.from_at) over of_holder as following_from_at
    from pieces
    left join neighbours using (gpu_uuid, slice_id, holder)
    window of_holder as (partition by pieces.gpu_uuid, pieces.slice_id, pieces.holder order by pieces.from_at)
),

bridged as (
    select
        * exclude (from_at, until_at),
        from_at as seen_from_at,
        until_at as seen_until_at,
        case
            when uid is null or previous_until_at is not null then from_at
            else least(from_at, greatest(begun_at, before_until_at))
        end as from_at,
        case
            when uid is null then until_at
            when following_from_at is not null then greatest(until_at, following_from_at)
            when next_at > last_at then least(greatest(until_at, known_until_at), next_at)
            else greatest(until_at, least(known_until_at, next_at))
        end as until_at
    from ordered
),

-- Pods that were seen on more cards or slices than they ask for never hold more than that at once.
crowded as (
    select uid, greatest(ceil(any_value(gpu_count)), 1) as allowed
    from bridged
    where uid is not null and gpu_count > 0 and resource is distinct from 'resourceclaim'
    group by uid
    having count(distinct concat_ws('/', gpu_uuid, slice_id)) > allowed
),

cuts as (
    select uid, allowed, cut_at as cut_from_at, lead(cut_at) over (partition by uid order by cut_at) as cut_until_at
    from (
        select distinct uid, crowded.allowed, unnest([bridged.from_at, bridged.seen_from_at, bridged.seen_until_at, bridged.until_at]) as cut_at
        from bridged
        inner join crowded using (uid)
    )
),

-- Seen there, else seen there before and after, else where it was seen last, else where it is seen next. A slice says more than its card.
candidates as (
    select
        bridged.*,
        cuts.cut_from_at,
        cuts.cut_until_at,
        cuts.allowed,
        case
            when cuts.cut_from_at >= bridged.seen_until_at then case when bridged.following_from_at is null then 2 else 1 end
            when cuts.cut_from_at < bridged.seen_from_at then 3
            else 0
        end as rank_of_reason
    from bridged
    inner join cuts
        on bridged.uid = cuts.uid and cuts.cut_from_at >= bridged.from_at and cuts.cut_from_at < bridged.until_at
    qualify row_number() over (partition by bridged.uid, cuts.cut_from_at, bridged.gpu_uuid, bridged.slice_id order by rank_of_reason, bridged.from_at) = 1
),

fitting as (
    select *
    from candidates
    qualify
        row_number() over (
            partition by uid, cut_from_at
            order by
                slice_id = '',
                rank_of_reason,
                case when rank_of_reason = 2 then -epoch(last_at) else epoch(seen_from_at) end,
                gpu_uuid,
                slice_id
        ) <= allowed
),

held as (
    select * from bridged
    anti join crowded using (uid)
    union all by name
    select
        * exclude (from_at, until_at, cut_from_at, cut_until_at, allowed, rank_of_reason),
        cut_from_at as from_at,
        cut_until_at as until_at
    from fitting
),

marked as (
    select
        *,
        case
            when from_at <= max(until_at) over (partition by gpu_uuid, slice_id, holder order by from_at, sighting rows between unbounded preceding and 1 preceding)
                and is_divided = lag(is_divided) over of_holder
                and (case when is_divided then weight else share end) = lag(case when is_divided then weight else share end) over of_holder
                then 0
            else 1
        end as is_new_stay
    from held
    window of_holder as (partition by gpu_uuid, slice_id, holder order by from_at, sighting)
),

numbered as (
    select *, sum(is_new_stay) over (partition by gpu_uuid, slice_id, holder order by from_at, sighting rows unbounded preceding) as stay
    from marked
),

joined as (
    select
        gpu_uuid,
        slice_id,
        holder,
        min(from_at) as stay_from_at,
        max(until_at) as stay_until_at,
        any_value(uid) as uid,
        any_value(namespace) as namespace,
        any_value(pod) as pod,
        any_value(node) as node,
        any_value(workload_id) as workload_id,
        any_value(share) as share,
        any_value(weight) as weight,
        any_value(is_divided) as is_divided
    from numbered
    group by gpu_uuid, slice_id, holder, stay
),

whole as (select distinct gpu_uuid from joined where slice_id = ''),

-- Where a scheduler speaks for the card, sightings do not. A card that is held in slices is held through them alone.
closed as (
    select spoken.gpu_uuid, slices.slice_id, spoken.from_at, spoken.until_at
    from ledger_spoken as spoken
    inner join (select distinct gpu_uuid, slice_id from joined) as slices using (gpu_uuid)
    union
    select gpu_uuid, '' as slice_id, stay_from_at, stay_until_at
    from joined
    semi join whole using (gpu_uuid)
    where slice_id <> ''
),

spans as (
    select gpu_uuid, slice_id, min(from_at) as from_at, max(until_at) as until_at
    from (
        select *, sum(is_new) over (partition by gpu_uuid, slice_id order by from_at, until_at rows unbounded preceding) as span
        from (
            select
                *,
                coalesce(
                    from_at > max(until_at) over (partition by gpu_uuid, slice_id order by from_at, until_at rows between unbounded preceding and 1 preceding),
                    true
                )::integer as is_new
            from closed
        )
    )
    group by gpu_uuid, slice_id, span
),

open as (
    select gpu_uuid, slice_id, lag(until_at, 1, '-infinity'::timestamptz) over (partition by gpu_uuid, slice_id order by from_at) as from_at, from_at as until_at
    from spans
    union all
    select gpu_uuid, slice_id, max(until_at), 'infinity'::timestamptz
    from spans
    group by gpu_uuid, slice_id
),

stays as (
    select * from joined
    anti join spans using (gpu_uuid, slice_id)
    union all by name
    select
        joined.* exclude (stay_from_at, stay_until_at),
        greatest(joined.stay_from_at, open.from_at) as stay_from_at,
        least(joined.stay_until_at, open.until_at) as stay_until_at
    from joined
    inner join open
        on
            joined.gpu_uuid = open.gpu_uuid
            and joined.slice_id = open.slice_id
            and joined.stay_from_at < open.until_at
            and joined.stay_until_at > open.from_at
),

-- A divided slice is cut wherever a pod comes or goes, and each part divided by the pods that are there.
edges as (
    select gpu_uuid, slice_id, edge_at as from_at, lead(edge_at) over (partition by gpu_uuid, slice_id order by edge_at) as until_at
    from (
        select distinct gpu_uuid, slice_id, unnest([stay_from_at, stay_until_at]) as edge_at
        from stays
        where is_divided
    )
),

divided as (
    select
        stays.*,
        edges.from_at,
        edges.until_at,
        stays.weight / count(*) over (partition by stays.gpu_uuid, stays.slice_id, edges.from_at) as part
    from stays
    inner join edges
        on
            stays.gpu_uuid = edges.gpu_uuid
            and stays.slice_id = edges.slice_id
            and edges.from_at >= stays.stay_from_at
            and edges.from_at < stays.stay_until_at
    where stays.is_divided
),

parts as (
    select
        *,
        (part is distinct from lag(part) over of_stay)::integer as is_new_part
    from divided
    window of_stay as (partition by gpu_uuid, slice_id, holder, stay_from_at order by from_at)
),

counted as (
    select *, sum(is_new_part) over (partition by gpu_uuid, slice_id, holder, stay_from_at order by from_at rows unbounded preceding) as part_number
    from parts
)

select
    gpu_uuid, slice_id, holder, uid, namespace, pod, node, workload_id, share, stay_from_at, stay_from_at as started_at, stay_until_at as ended_at
from stays
where not is_divided
union all by name
select
    gpu_uuid,
    slice_id,
    holder,
    any_value(uid) as uid,
    any_value(namespace) as namespace,
    any_value(pod) as pod,
    any_value(node) as node,
    any_value(workload_id) as workload_id,
    any_value(part) as share,
    stay_from_at,
    min(from_at) as started_at,
    max(until_at) as ended_at
from counted
group by gpu_uuid, slice_id, holder, stay_from_at, part_number;
