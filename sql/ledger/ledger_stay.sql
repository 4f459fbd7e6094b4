-- name: ledger_stay()!
-- How long each sighted pod held its card: sightings, what the pod's record says beyond them, and the share.
-- Grain: one row per pod, card or slice, and stretch throughout which its share is the same.
-- Reads: ledger_sighting, ledger_pod
-- Writes: ledger_stay
-- Units: share of a physical GPU
-- Ignores: sightings outside of the pod's life (labels linger after the containers ended). Gaps between sightings, and before and after them, are bridged as far as the record says that the pod ran; on a card that it had alone, until another is sighted there.
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

chosen as (
    select *
    from clustered
    qualify dense_rank() over (partition by sighting order by is_of_cluster desc, cluster) = 1
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

-- Who was seen on the slice next, and how long those that were seen before held it, where the pod had it alone.
neighbours as (
    select
        piece.sighting,
        piece.holder,
        min(other.from_at) filter (where other.from_at >= piece.from_at and other.until_at > piece.until_at) as next_at,
        max(greatest(other.until_at, other.known_until_at)) filter (where other.from_at < piece.from_at) as before_until_at
    from pieces as piece
    inner join pieces as other
        on piece.gpu_uuid = other.gpu_uuid and piece.slice_id = other.slice_id and piece.holder <> other.holder
    where piece.is_alone
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
    left join neighbours using (sighting, holder)
    window of_holder as (partition by pieces.gpu_uuid, pieces.slice_id, pieces.holder order by pieces.from_at)
),

bridged as (
    select
        * exclude (from_at, until_at),
        case
            when uid is null or previous_until_at is not null then from_at
            else least(from_at, greatest(begun_at, before_until_at))
        end as from_at,
        case
            when next_at > last_at then least(reach_at, next_at)
            else greatest(until_at, least(reach_at, next_at))
        end as until_at
    from ordered
    cross join lateral (
        select case when uid is null then until_at else greatest(until_at, coalesce(following_from_at, known_until_at)) end as reach_at
    ) as reach
),

marked as (
    select
        *,
        case
            when from_at <= max(until_at) over (partition by gpu_uuid, slice_id, holder order by from_at, sighting rows between unbounded preceding and 1 preceding)
                and (is_divided or (share is not distinct from lag(share) over of_holder))
                then 0
            else 1
        end as is_new_stay
    from bridged
    window of_holder as (partition by gpu_uuid, slice_id, holder order by from_at, sighting)
),

numbered as (
    select *, sum(is_new_stay) over (partition by gpu_uuid, slice_id, holder order by from_at, sighting rows unbounded preceding) as stay
    from marked
),

stays as (
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
