-- name: fragmentation_stranded(from_at, to_at)
-- Stretches without a gap in which free shares of a node could not be used, by cause.
-- Grain: one row per node, cause and stretch
-- Columns: node varchar, pool varchar, cause varchar, from_at timestamptz, until_at timestamptz, gpu_hours double,
--   node_gpu_hours double, gpus_at_end double
-- Reads: state_span
-- Units: GPU-hours; `gpus_at_end` is in GPUs, stranded when the window ends
-- Ignores: time outside the window; every state but free_stranded, except for `node_gpu_hours`, the node's hours in the stretch
-- Order: by node, cause, from_at
with spans_in_the_window as (
    select
        node,
        pool,
        state,
        cause,
        share,
        greatest(from_at, :from_at::timestamptz) as from_at,
        least(until_at, :to_at::timestamptz) as until_at
    from state_span
    where
        hour_at >= :from_at::timestamptz - interval 1 hour
        and hour_at < :to_at::timestamptz
        and from_at < :to_at::timestamptz
        and until_at > :from_at::timestamptz
),

stranded_spans as (
    select
        *,
        max(until_at) over (
            partition by node, cause order by from_at, until_at rows between unbounded preceding and 1 preceding
        ) as reached_at
    from spans_in_the_window
    where state = 'free_stranded'
),

numbered_stretches as (
    select
        *,
        count(*) filter (where reached_at is null or from_at > reached_at) over (
            partition by node, cause order by from_at, until_at rows unbounded preceding
        ) as stretch
    from stranded_spans
),

stretches as (
    select
        node,
        min(pool) as pool,
        cause,
        min(from_at) as from_at,
        max(until_at) as until_at,
        sum(share * date_diff('microsecond', from_at, until_at)) / 3600000000 as gpu_hours,
        coalesce(sum(share) filter (where until_at = :to_at::timestamptz), 0) as gpus_at_end
    from numbered_stretches
    group by node, cause, stretch
),

stretches_beside_all_hours_of_the_node as (
    select
        stretches.node,
        stretches.pool,
        stretches.cause,
        stretches.from_at,
        stretches.until_at,
        any_value(stretches.gpu_hours) as gpu_hours,
        sum(
            spans_in_the_window.share * date_diff(
                'microsecond',
                greatest(spans_in_the_window.from_at, stretches.from_at),
                least(spans_in_the_window.until_at, stretches.until_at)
            )
        ) / 3600000000 as node_gpu_hours,
        any_value(stretches.gpus_at_end) as gpus_at_end
    from stretches
    inner join spans_in_the_window
        on
            stretches.node = spans_in_the_window.node
            and stretches.from_at < spans_in_the_window.until_at
            and stretches.until_at > spans_in_the_window.from_at
    group by stretches.node, stretches.pool, stretches.cause, stretches.from_at, stretches.until_at
)

select
    node,
    pool,
    cause,
    from_at,
    until_at,
    gpu_hours,
    node_gpu_hours,
    gpus_at_end
from stretches_beside_all_hours_of_the_node
order by node, cause, from_at
