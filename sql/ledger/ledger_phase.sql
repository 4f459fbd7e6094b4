-- name: ledger_phase(from_at, to_at)!
-- The quiet phases that work declares of itself, for each hold of theirs: there cards may be quiet without being idle.
-- Grain: one row per hold and stretch of one phase.
-- Reads: workload_phase, ledger_hold
-- Writes: ledger_phase
-- Units: none
-- Ignores: what goes beyond two hours of one phase, however often it is declared anew. A phase that was never closed ends with the next one of the same work or pod.
create or replace temp table ledger_phase as
with told as (
    select
        workload_id,
        pod,
        phase,
        from_at,
        coalesce(
            until_at,
            lead(from_at) over (partition by workload_id, pod order by from_at),
            from_at + interval 2 hour
        ) as until_at
    from workload_phase
    where workload_id in (select workload_id from ledger_hold) and from_at < :to_at::timestamptz
),

quiet as (
    select
        *,
        case
            when from_at <= max(until_at) over (partition by workload_id, pod, phase order by from_at, until_at rows between unbounded preceding and 1 preceding) then 0
            else 1
        end as is_new
    from told
    where phase in ('initialization', 'compile', 'checkpoint', 'evaluation', 'rollout', 'update') and until_at > from_at
),

numbered as (
    select *, sum(is_new) over (partition by workload_id, pod, phase order by from_at, until_at rows unbounded preceding) as stretch
    from quiet
),

stretches as (
    select workload_id, pod, phase, min(from_at) as from_at, least(max(until_at), min(from_at) + interval 2 hour) as until_at
    from numbered
    group by workload_id, pod, phase, stretch
)

select hold.hold, stretches.phase, stretches.from_at, stretches.until_at
from stretches
inner join ledger_hold as hold
    on
        stretches.workload_id = hold.workload_id
        and stretches.pod in ('', hold.pod)
        and coalesce(stretches.from_at < hold.ended_at, true)
        and stretches.until_at > hold.started_at
where stretches.until_at > :from_at::timestamptz;
