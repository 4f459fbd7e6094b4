-- name: quota_outage_declared(from_at, to_at)
-- Stretches in which every node of the fleet was under a condition that takes it out of use.
-- Grain: one row per stretch
-- Columns: from_at timestamptz, until_at timestamptz
-- Reads: node, condition
-- Units: instants
-- Ignores: spare nodes' conditions, conditions of single cards, nodes without GPUs
-- Order: by from_at
with life_of_each_node as (
    select
        node,
        greatest(min(from_at), :from_at::timestamptz) as from_at,
        least(max(coalesce(until_at, :to_at::timestamptz)), :to_at::timestamptz) as until_at
    from node
    where
        gpu_count > 0
        and from_at < :to_at::timestamptz
        and (until_at is null or until_at > :from_at::timestamptz)
    group by node
),

conditions_of_known_nodes as (
    select
        condition.subject as node,
        greatest(condition.from_at, life_of_each_node.from_at) as from_at,
        least(coalesce(condition.until_at, :to_at::timestamptz), life_of_each_node.until_at) as until_at
    from condition
    inner join life_of_each_node on condition.subject = life_of_each_node.node
    where
        condition.subject_kind = 'node'
        and condition.condition <> 'spare'
        and condition.from_at < life_of_each_node.until_at
        and (condition.until_at is null or condition.until_at > life_of_each_node.from_at)
),

conditions_with_the_reach_of_earlier_ones as (
    select
        *,
        max(until_at) over (
            partition by node order by from_at, until_at rows between unbounded preceding and 1 preceding
        ) as reached_at
    from conditions_of_known_nodes
),

numbered_down_times as (
    select
        *,
        count(*) filter (where reached_at is null or from_at > reached_at) over (
            partition by node order by from_at, until_at rows unbounded preceding
        ) as stretch
    from conditions_with_the_reach_of_earlier_ones
),

down_times as (
    select
        node,
        min(from_at) as from_at,
        max(until_at) as until_at
    from numbered_down_times
    group by node, stretch
),

changes as (
    select from_at as instant, 1 as living, 0 as down from life_of_each_node
    union all
    select until_at, -1, 0 from life_of_each_node
    union all
    select from_at, 0, 1 from down_times
    union all
    select until_at, 0, -1 from down_times
),

changes_of_each_instant as (
    select
        instant,
        sum(living) as living,
        sum(down) as down
    from changes
    group by instant
),

running_totals as (
    select
        instant as from_at,
        lead(instant) over (order by instant) as until_at,
        sum(living) over (order by instant) as living,
        sum(down) over (order by instant) as down
    from changes_of_each_instant
),

time_with_every_node_down as (
    select
        from_at,
        until_at,
        lag(until_at) over (order by from_at) as reached_at
    from running_totals
    where until_at is not null and living > 0 and down >= living
),

numbered_outages as (
    select
        *,
        count(*) filter (where reached_at is null or from_at > reached_at) over (
            order by from_at rows unbounded preceding
        ) as stretch
    from time_with_every_node_down
),

outages as (
    select
        min(from_at) as from_at,
        max(until_at) as until_at
    from numbered_outages
    group by stretch
)

select
    from_at,
    until_at
from outages
order by from_at
