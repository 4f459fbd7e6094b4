-- name: ledger_unseen()!
-- Cards for pods that ask for GPUs, run on a node, and were seen on none of its cards, or on fewer than they ask for: they hold them all the same.
-- Grain: one row per pod and card, and stretch of time.
-- Reads: ledger_pod, ledger_stay, ledger_card, ledger_spoken
-- Writes: ledger_unseen
-- Units: whole cards
-- Ignores: slices and shared cards (which one, and how much of a card, is not known), cards that a scheduler speaks for, and what goes beyond the node's cards. Which cards is not known (is_placed false) unless pods of one workload ask for all that nobody is seen on: else the first by UUID of these stand for them.
create or replace temp table ledger_unseen as
with asking as (
    select uid, namespace, pod, node, workload_id, floor(gpu_count)::integer as cards, begun_at, known_until_at
    from ledger_pod
    where
        gpu_count >= 1
        and node is not null
        and resource not like '%\_mig\_%' escape '\'
        and resource not like '%\_shared' escape '\'
        and resource <> 'resourceclaim'
),

-- Most pods are seen on all their cards, all the time.
wanting as (
    select asking.*
    from asking
    left join (
        select uid, sum(epoch(ended_at - started_at)) as held_seconds
        from ledger_stay
        where uid is not null
        group by uid
    ) as seen using (uid)
    where coalesce(seen.held_seconds < asking.cards * epoch(asking.known_until_at - asking.begun_at) - 0.001, true)
),

cards as (select * from ledger_card semi join wanting using (node) where status = 'in_service'),

edges as (
    select node, edge_at as from_at, lead(edge_at) over (partition by node order by edge_at) as until_at
    from (
        select node, unnest([begun_at, known_until_at]) as edge_at from wanting
        union
        select node, unnest([from_at, until_at]) from cards
        union
        select cards.node, unnest([stay.started_at, stay.ended_at])
        from ledger_stay as stay
        inner join cards using (gpu_uuid)
        union
        select wanting.node, unnest([stay.started_at, stay.ended_at])
        from ledger_stay as stay
        inner join wanting using (uid)
        union
        select cards.node, unnest([spoken.from_at, spoken.until_at])
        from ledger_spoken as spoken
        inner join cards using (gpu_uuid)
    )
),

offered as (
    select
        edges.node,
        edges.from_at,
        edges.until_at,
        cards.gpu_uuid,
        bool_or(stay.gpu_uuid is not null) as is_held
    from edges
    inner join cards
        on edges.node = cards.node and edges.from_at >= cards.from_at and edges.from_at < cards.until_at
    left join ledger_stay as stay
        on cards.gpu_uuid = stay.gpu_uuid and edges.from_at >= stay.started_at and edges.from_at < stay.ended_at
    anti join ledger_spoken as spoken
        on cards.gpu_uuid = spoken.gpu_uuid and edges.from_at >= spoken.from_at and edges.from_at < spoken.until_at
    group by all
),

ranked as (
    select
        node,
        from_at,
        until_at,
        gpu_uuid,
        is_held,
        count(*) filter (where not is_held) over of_node as free_cards,
        row_number() over (partition by node, from_at order by is_held, gpu_uuid) - 1 as place
    from offered
    window of_node as (partition by node, from_at)
),

-- What a pod is not seen on. One that is seen on a slice or a share holds no further card that anyone knows of.
lacking as (
    select
        edges.node,
        edges.from_at,
        wanting.uid,
        any_value(wanting.cards) - count(stay.uid) as cards
    from edges
    inner join wanting
        on edges.node = wanting.node and edges.from_at >= wanting.begun_at and edges.from_at < wanting.known_until_at
    left join ledger_stay as stay
        on wanting.uid = stay.uid and edges.from_at >= stay.started_at and edges.from_at < stay.ended_at
    group by edges.node, edges.from_at, wanting.uid
    having any_value(wanting.cards) > count(stay.uid) and coalesce(bool_and(stay.slice_id = '' and stay.share >= 1), true)
),

asked as (
    select
        lacking.node,
        lacking.from_at,
        lacking.uid,
        wanting.namespace,
        wanting.pod,
        wanting.workload_id,
        wanting.begun_at,
        lacking.cards,
        sum(lacking.cards) over (of_node order by wanting.begun_at, lacking.uid) - lacking.cards as first_place,
        sum(lacking.cards) over of_node as node_asked,
        min(coalesce(wanting.workload_id, lacking.uid)) over of_node = max(coalesce(wanting.workload_id, lacking.uid)) over of_node as is_one
    from lacking
    inner join wanting using (uid)
    window of_node as (partition by lacking.node, lacking.from_at)
),

placed as (
    select
        asked.*,
        ranked.gpu_uuid,
        ranked.until_at,
        asked.is_one and asked.node_asked >= ranked.free_cards as is_placed
    from asked
    inner join ranked
        on
            asked.node = ranked.node
            and asked.from_at = ranked.from_at
            and not ranked.is_held
            and ranked.place >= asked.first_place
            and ranked.place < asked.first_place + asked.cards
),

marked as (
    select
        *,
        case when from_at = lag(until_at) over of_card and is_placed = lag(is_placed) over of_card then 0 else 1 end as is_new
    from placed
    window of_card as (partition by uid, gpu_uuid order by from_at)
),

numbered as (
    select *, sum(is_new) over (partition by uid, gpu_uuid order by from_at rows unbounded preceding) as stretch
    from marked
)

select
    uid,
    gpu_uuid,
    any_value(namespace) as namespace,
    any_value(pod) as pod,
    any_value(node) as node,
    any_value(workload_id) as workload_id,
    any_value(begun_at) as begun_at,
    any_value(is_placed) as is_placed,
    min(from_at) as started_at,
    max(until_at) as ended_at
from numbered
group by uid, gpu_uuid, stretch;
