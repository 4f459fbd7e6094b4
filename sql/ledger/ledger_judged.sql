-- name: ledger_judged()!
-- The state of each held piece: idle stretches of 30 min, standstills of 10 min on all ranks, hourly grade, coverage.
-- Grain: one row per hold and minute piece.
-- Reads: ledger_piece
-- Writes: ledger_judged
-- Units: share of a physical GPU, seconds, ratios
-- Ignores: idle minutes before ready + grace (starting), of a declared floor (standby), and in runs under 30 min (low). A silence of more than three intervals ends a run; a shorter one is bridged: unknown itself, but its run goes on (activity).
create or replace temp table ledger_judged as
with still_minutes as (
    select job, minute
    from ledger_piece
    group by job, minute
    having bool_and(is_still)
),

hours as (
    select
        hold,
        hour_at,
        sum(read_seconds * piece_seconds / 60) / sum(piece_seconds) as coverage_ratio,
        sum(sm_active_ratio * piece_seconds) filter (where activity = 'active' and not is_shared)
        / sum(piece_seconds) filter (where activity = 'active' and sm_active_ratio is not null and not is_shared) as hour_sm_active_ratio
    from ledger_piece
    group by hold, hour_at
),

kinds as (
    select
        piece.*,
        hours.coverage_ratio,
        hours.hour_sm_active_ratio,
        case
            when piece.activity is null then null
            when piece.is_still and still_minutes.job is not null then 'stalled'
            else piece.activity
        end as run_kind
    from ledger_piece as piece
    inner join hours on piece.hold = hours.hold and piece.hour_at = hours.hour_at
    left join still_minutes on piece.job = still_minutes.job and piece.minute = still_minutes.minute
),

bounded as (
    select
        *,
        case
            when run_kind is null then 0
            when
                run_kind is distinct from lag(run_kind ignore nulls) over of_hold
                or is_in_grace is distinct from lag(case when run_kind is not null then is_in_grace end ignore nulls) over of_hold
                or epoch(first_at - lag(case when run_kind is not null then last_at end ignore nulls) over of_hold) > 3 * interval_seconds
                then 1
            else 0
        end as is_new_run
    from kinds
    window of_hold as (partition by hold order by from_at)
),

numbered as (
    select *, sum(is_new_run) over (partition by hold order by from_at rows unbounded preceding) as run
    from bounded
),

runs as (
    select
        hold,
        run,
        any_value(run_kind) as kind_of_run,
        max(until_at) filter (where run_kind is not null) as run_until_at,
        epoch(max(until_at) filter (where run_kind is not null) - min(from_at) filter (where run_kind is not null)) as run_seconds
    from numbered
    group by hold, run
),

judged as (
    select
        numbered.*,
        runs.kind_of_run,
        numbered.run_kind is null and numbered.from_at < runs.run_until_at as is_bridged,
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
    from numbered
    inner join runs on numbered.hold = runs.hold and numbered.run = runs.run
)

select
    hold,
    hour_at,
    from_at,
    until_at,
    piece_seconds,
    read_seconds,
    share,
    state,
    gpu_util_ratio,
    sm_active_ratio,
    fb_used_ratio,
    power_watts,
    coverage_ratio,
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
            || case when is_power_checked then '+power' else '' end
            || case when is_contradicted then '+profiling_contradicted' else '' end
            || case when is_shared then '+shared_card' else '' end
    end as basis
from judged;
