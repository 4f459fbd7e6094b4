-- name: flapping_node(from_at, to_at)
-- When nodes stopped being ready, and for how long.
-- Grain: one row per node and time it was lost.
-- Columns: node varchar, from_at timestamptz, until_at timestamptz, gpu_count bigint, reason varchar, source varchar
-- Reads: condition, fault_event, asset
-- Units: `until_at` is NULL while it is away, and for events of which nobody told the end
-- Ignores: nodes that were drained or under repair when it happened, and events beside a condition (within 5 min).
-- Order: node, from_at
with told as (
    select subject as node, from_at, until_at, reason, source
    from condition
    where
        subject_kind = 'node'
        and condition = 'not_ready'
        and from_at >= :from_at::timestamptz
        and from_at < :to_at::timestamptz
),

events as (
    select event.node, event.ts as from_at, null::timestamptz as until_at, event.detail as reason, event.source
    from fault_event as event
    where
        event.kind = 'node_not_ready'
        and event.ts >= :from_at::timestamptz
        and event.ts < :to_at::timestamptz
        and not exists (
            select 1
            from told
            where
                told.node = event.node
                and told.from_at >= event.ts - interval 5 minute
                and told.from_at <= event.ts + interval 5 minute
        )
),

lost as (
    select * from told
    union all
    select * from events
),

cards as (
    select node, count(distinct gpu_uuid) as gpu_count
    from asset
    where status <> 'returned'
    group by node
)

select lost.node, lost.from_at, lost.until_at, coalesce(cards.gpu_count, 0) as gpu_count, lost.reason, lost.source
from lost
left join cards using (node)
where
    not exists (
        select 1
        from condition as planned
        where
            planned.subject = lost.node
            and planned.condition in ('drain', 'under_repair')
            and planned.from_at < lost.from_at
            and coalesce(planned.until_at > lost.from_at, true)
    )
order by lost.node, lost.from_at;
