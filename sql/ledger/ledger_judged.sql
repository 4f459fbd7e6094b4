-- name: ledger_judged()!
-- The state of each held piece: idle stretches of 30 min, standstills of 10 min on all ranks, hourly grade, coverage.
-- Grain: one row per allocation, card, slice and minute piece.
-- Reads: ledger_piece
-- Writes: ledger_judged
-- Units: share of a physical GPU, seconds, ratios
-- Ignores: idle minutes before ready + grace (starting), of a declared floor (standby), and in runs under 30 min (low). A silence of more than three intervals ends a run; a shorter one is bridged: unknown itself, but its run goes on (activity).
create or replace temp table ledger_judged as
with ranked as (
    select
        *,
        bool_and(is_still) over (partition by workload_id, minute) as is_job_still,
        sum(least(read_seconds, 60) * piece_seconds / 60) over of_hour / sum(piece_seconds) over of_hour as coverage_ratio,
        sum(sm_active_ratio * piece_seconds) filter (where activity = 'active' and not is_shared) over of_hour
        / sum(piece_seconds) filter (where activity = 'active' and sm_active_ratio is not null and not is_shared) over of_hour as hour_sm_active_ratio
    from ledger_piece
    window of_hour as (partition by allocation_id, gpu_uuid, slice_id, hour_at)
),

kinds as (
    select
        *,
        case when activity is null then null when is_job_still then 'stalled' else activity end as run_kind
    from ranked
),

bounded as (
    select
        *,
        case
            when run_kind is null then 0
            when
                run_kind is distinct from lag(run_kind ignore nulls) over of_share
                or is_in_grace is distinct from lag(case when run_kind is not null then is_in_grace end ignore nulls) over of_share
                or epoch(first_at - lag(case when run_kind is not null then last_at end ignore nulls) over of_share) > 3 * interval_seconds
                then 1
            else 0
        end as is_new_run
    from kinds
    window of_share as (partition by allocation_id, gpu_uuid, slice_id order by from_at)
),

runs as (
    select
        *,
        sum(is_new_run) over (partition by allocation_id, gpu_uuid, slice_id order by from_at rows unbounded preceding) as run
    from bounded
),

measured as (
    select
        *,
        epoch(
            max(case when run_kind is not null then until_at end) over of_run
            - min(case when run_kind is not null then from_at end) over of_run
        ) as run_seconds,
        first_value(run_kind ignore nulls) over of_run as kind_of_run,
        run_kind is null
        and from_at < max(case when run_kind is not null then until_at end) over of_run as is_bridged
    from runs
    window of_run as (partition by allocation_id, gpu_uuid, slice_id, run)
),

judged as (
    select
        *,
        case
            when is_before_ready then 'alloc_starting'
            when run_kind is null or coverage_ratio < 0.5 then 'alloc_unknown'
            when run_kind = 'idle' and is_in_grace then 'alloc_starting'
            when run_kind = 'idle' and is_floor then 'alloc_standby'
            when run_kind = 'idle' and run_seconds >= 1800 then 'alloc_idle'
            when run_kind = 'idle' then 'alloc_low'
            when run_kind = 'stalled' and run_seconds >= 600 then 'alloc_stalled'
            when is_shared or sm_active_ratio is null then 'alloc_ungraded'
            when hour_sm_active_ratio < 0.5 then 'alloc_low'
            else 'alloc_productive'
        end as state
    from measured
)

select
    * exclude (is_new_run, run, run_kind, kind_of_run, is_job_still, activity),
    case
        when is_before_ready or coverage_ratio < 0.5 then null
        when is_bridged then case when kind_of_run = 'stalled' then 'active' else kind_of_run end
        when run_kind = 'stalled' then 'active'
        else run_kind
    end as activity,
    case
        when is_before_ready then 'not_ready'
        when coverage_ratio < 0.5 then 'coverage'
        when state = 'alloc_unknown' and is_contradicted then 'contradictory'
        when state = 'alloc_unknown' then 'no_reading'
        else
            signal
            || case when power_watts is not null and idle_below_watts is not null and signal <> 'power' then '+power' else '' end
            || case when is_contradicted then '+profiling_contradicted' else '' end
            || case when is_shared then '+shared_card' else '' end
    end as basis
from judged;
