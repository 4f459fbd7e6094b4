-- name: hardware_fault_away(from_at, to_at)
-- Cards that were out of use after faults: each stretch belongs to the last fault of its card, else of its node, that came before it.
-- Grain: one row per fault that took cards out of use.
-- Columns: ts timestamptz, node varchar, gpu_uuid varchar, kind varchar, code varchar, away_gpu_hours double, away_gpus bigint,
--   away_until_at timestamptz, is_open boolean
-- Reads: fault, condition, asset
-- Units: GPU-hours of cards, up to the window's end; `is_open`: some card is still away then
-- Ignores: stretches that began more than 1 h after, or more than 10 min before, any fault: nobody said what they were for.
-- Order: ts, node, gpu_uuid, kind, code
with cards as (
    select gpu_uuid, arg_max(node, from_at) as node
    from asset
    where from_at < :to_at::timestamptz and status <> 'returned'
    group by gpu_uuid
),

out_of_use as (
    select
        subject,
        from_at,
        least(coalesce(until_at, :to_at::timestamptz), :to_at::timestamptz) as until_at,
        coalesce(until_at > :to_at::timestamptz, true) as is_open
    from condition
    where
        condition in ('not_ready', 'cordoned_fault', 'drain', 'gpu_lost', 'fatal_xid', 'under_repair')
        and from_at < :to_at::timestamptz
        and coalesce(until_at > :from_at::timestamptz, true)
),

away as (
    select cards.gpu_uuid as card, cards.node, out_of_use.from_at, out_of_use.until_at, out_of_use.is_open
    from out_of_use
    inner join cards on out_of_use.subject = cards.gpu_uuid
    union
    select cards.gpu_uuid, cards.node, out_of_use.from_at, out_of_use.until_at, out_of_use.is_open
    from out_of_use
    inner join cards on out_of_use.subject = cards.node
),

reached as (
    select
        *,
        max(until_at) over (partition by card order by from_at, until_at rows between unbounded preceding and 1 preceding) as reached_at
    from away
),

numbered as (
    select
        *,
        count(*) filter (where reached_at is null or from_at > reached_at) over (
            partition by card order by from_at, until_at rows unbounded preceding
        ) as stretch
    from reached
),

stretches as (
    select card, node, stretch, min(from_at) as from_at, max(until_at) as until_at, bool_or(is_open) as is_open
    from numbered
    group by card, node, stretch
),

-- Of several faults around the beginning, one of the card itself stands before one of the node or of a neighbour.
caused as (
    select
        stretches.*,
        fault.ts,
        fault.node as fault_node,
        fault.gpu_uuid,
        fault.kind,
        fault.code,
        row_number() over (
            partition by stretches.card, stretches.stretch
            order by (fault.gpu_uuid = stretches.card) desc, (fault.gpu_uuid = '') desc, fault.ts, fault.gpu_uuid, fault.kind, fault.code
        ) as place
    from stretches
    inner join fault
        on
            stretches.node = fault.node
            and stretches.from_at >= fault.ts - interval 10 minute
            and stretches.from_at <= fault.ts + interval 1 hour
            and fault.ts >= :from_at::timestamptz - interval 30 day
            and fault.ts < :to_at::timestamptz
)

select
    ts,
    fault_node as node,
    gpu_uuid,
    kind,
    code,
    sum(epoch_us(until_at - greatest(from_at, ts)) / 3.6e9) as away_gpu_hours,
    count(distinct card) as away_gpus,
    max(until_at) as away_until_at,
    bool_or(is_open) as is_open
from caused
where place = 1 and until_at > ts
group by ts, fault_node, gpu_uuid, kind, code
order by ts, node, gpu_uuid, kind, code;
