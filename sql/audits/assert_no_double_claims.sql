-- name: assert_no_double_claims(from_at, to_at)
-- Instants of a share that two claims of waste or of low activity speak of, and claims that exceed the ledger; must give no row.
-- Grain: one row per claim that overlaps an earlier one of its share, that no ledger span holds, or that counts more than it holds.
-- Columns: gpu_uuid varchar, slice_id varchar, allocation_id varchar, from_at timestamptz, until_at timestamptz, analyzer varchar, problem varchar
-- Reads: claim, state_span
-- Units: none
-- Ignores: advice that looks at what others count too (oversized requests, stragglers, MFU), and health.
-- Order: gpu_uuid, slice_id, allocation_id, from_at, analyzer, problem
with counted as (
    select *
    from claim
    where
        hour_at >= :from_at::timestamptz
        and hour_at < :to_at::timestamptz
        and analyzer in ('idle_allocation', 'gang_partial_idle', 'stalled_allocation', 'fragmentation', 'low_activity')
),

-- What is claimed of a share so far reaches to `reached_at`.
ordered as (
    select
        *,
        max(until_at) over (
            partition by gpu_uuid, slice_id, allocation_id
            order by from_at, until_at, analyzer
            rows between unbounded preceding and 1 preceding
        ) as reached_at
    from counted
),

covered as (
    select
        counted.gpu_uuid,
        counted.slice_id,
        counted.allocation_id,
        counted.from_at,
        counted.until_at,
        counted.analyzer,
        counted.gpu_hours,
        counted.held_gpu_hours,
        sum(
            span.share * epoch_us(least(span.until_at, counted.until_at) - greatest(span.from_at, counted.from_at)) / 3.6e9
        ) as ledger_gpu_hours
    from counted
    left join state_span as span
        on
            counted.hour_at = span.hour_at
            and counted.gpu_uuid = span.gpu_uuid
            and counted.slice_id = span.slice_id
            and counted.allocation_id = span.allocation_id
            and counted.state = span.state
            and counted.from_at < span.until_at
            and counted.until_at > span.from_at
    group by all
)

select gpu_uuid, slice_id, allocation_id, from_at, until_at, analyzer, 'overlaps' as problem
from ordered
where from_at < reached_at
union all
select gpu_uuid, slice_id, allocation_id, from_at, until_at, analyzer, 'exceeds_ledger' as problem
from covered
where coalesce(ledger_gpu_hours, 0) < greatest(gpu_hours, held_gpu_hours) - 1e-6
union all
select gpu_uuid, slice_id, allocation_id, from_at, until_at, analyzer, 'exceeds_held' as problem
from counted
where gpu_hours > held_gpu_hours + 1e-6
order by gpu_uuid, slice_id, allocation_id, from_at, analyzer, problem;
