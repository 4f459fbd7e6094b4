-- name: double_claims(from_at, to_at)
-- Cards that two or more hold at a time although only one can: in the ledger their shares are scaled to one card.
-- Grain: one row per card or slice and stretch of time.
-- Columns: gpu_uuid varchar, slice_id varchar, from_at timestamptz, until_at timestamptz, claims bigint
-- Reads: allocation, holding, pod, node, asset
-- Units: count of holders, the most at one time
-- Ignores: cards that are divided by slices or in time: allocations that add up to at most a card, and sightings unless each pod asks for whole cards of a node that offers no more of them than it has. A single instant with two pods is a handover.
-- Order: gpu_uuid, slice_id, from_at
with allocated as (
    select gpu_uuid, share, started_at, coalesce(ended_at, :to_at::timestamptz) as ended_at
    from allocation
    where
        gpu_uuid is not null
        and share > 0
        and started_at < :to_at::timestamptz
        and coalesce(ended_at > :from_at::timestamptz, true)
),

turns as (
    select gpu_uuid, started_at as turned_at, share, 1 as turn from allocated
    union all
    select gpu_uuid, ended_at, -share, -1 from allocated
),

levels as (
    select
        gpu_uuid,
        turned_at as from_at,
        lead(turned_at) over of_card as until_at,
        sum(sum(share)) over so_far as share,
        sum(sum(turn)) over so_far as claims
    from turns
    group by gpu_uuid, turned_at
    window
        of_card as (partition by gpu_uuid order by turned_at),
        so_far as (partition by gpu_uuid order by turned_at rows unbounded preceding)
),

-- Pods that ask for whole cards where one of the resource is one card.
exclusive as (
    select pod.namespace, pod.pod, pod.started_at, pod.ended_at
    from pod
    inner join (select node, arg_max(gpu_count, from_at) as gpu_count from node group by node) as offer using (node)
    inner join (select node, count(distinct gpu_uuid) as cards from asset group by node) as owned using (node)
    where
        pod.gpu_count >= 1
        and pod.resource not like '%\_mig\_%' escape '\'
        and pod.resource not like '%\_shared' escape '\'
        and offer.gpu_count <= owned.cards
),

sighted as (
    select holding.gpu_uuid, holding.slice_id, holding.ts, count(distinct concat_ws('/', holding.namespace, holding.pod)) as claims
    from holding
    inner join exclusive
        on
            holding.namespace = exclusive.namespace
            and holding.pod = exclusive.pod
            and coalesce(holding.ts >= exclusive.started_at, true)
            and coalesce(holding.ts < exclusive.ended_at, true)
    where holding.ts >= :from_at::timestamptz and holding.ts < :to_at::timestamptz
    group by all
),

crowds as (
    select
        *,
        sum((claims = 1)::integer) over (partition by gpu_uuid, slice_id order by ts rows unbounded preceding) as singles
    from sighted
),

claimed as (
    select gpu_uuid, '' as slice_id, from_at, until_at, claims
    from levels
    where share > 1 + 1e-6 and claims > 1 and until_at > from_at
    union all
    select gpu_uuid, slice_id, min(ts), max(ts), max(claims)
    from crowds
    where claims > 1
    group by gpu_uuid, slice_id, singles
    having count(*) > 1
)

select
    gpu_uuid,
    slice_id,
    greatest(from_at, :from_at::timestamptz) as from_at,
    least(until_at, :to_at::timestamptz) as until_at,
    claims::bigint as claims
from claimed
order by gpu_uuid, slice_id, from_at;
