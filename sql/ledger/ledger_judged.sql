-- name: ledger_judged()!
-- The state of each held stretch of minutes: idle stretches of 30 min, standstills of 10 min on all ranks, hourly grade, coverage.
-- Grain: one row per hold and run of minutes within an hour throughout which nothing changes.
-- Reads: ledger_piece, ledger_progress
-- Writes: ledger_judged
-- Units: share of a physical GPU, seconds, ratios
-- Ignores: what telemetry alone would call idle while a server answered requests (low, with cause serving; it ends a run). Ranks that were not read in a minute, where half of them were, for what all ranks do. Idle minutes in a declared quiet phase (low, with the phase as their cause; they end a run), before ready + grace (starting), of a declared floor (standby), and in runs under 30 min (low). A silence of more than three intervals ends a run; a shorter one is bridged: unknown itself, but its run goes on (activity).
create or replace temp table ledger_judged as
with busy_minutes as (
    select
        job,
        minute,
        bool_and(is_still) filter (where activity is not null) as is_still,
        bool_and(is_busy) filter (where activity is not null) as is_busy
    from ledger_piece
    group by job, minute
    having is_busy and count(activity) * 2 >= count(*)
),

stepped as (
    select job, any_value(first_minute) as first_minute
    from ledger_progress
    group by job
),

-- Where a job tells its steps, they say whether it stands still; before the first of them, and elsewhere, telemetry does.
still_minutes as (
    select busy.job, busy.minute, false as is_by_steps
    from busy_minutes as busy
    left join stepped using (job)
    where busy.is_still and coalesce(busy.minute < stepped.first_minute, true)
    union all
    select busy.job, busy.minute, true
    from busy_minutes as busy
    inner join ledger_progress as standstill
        on busy.job = standstill.job and busy.minute >= standstill.from_minute and busy.minute < standstill.until_minute
    where busy.is_busy
),

hours as (
    select
        hold,
        hour_at,
        sum(read_seconds * piece_seconds / 60) / sum(piece_seconds) as coverage_ratio,
        sum(grade_ratio * piece_seconds) filter (where activity = 'active' and phase = '')
        / sum(piece_seconds) filter (where activity = 'active' and phase = '' and grade_ratio is not null) as hour_grade_ratio,
        sum(grade_ratio * piece_seconds) filter (where activity = 'active' and phase <> '')
        / sum(piece_seconds) filter (where activity = 'active' and phase <> '' and grade_ratio is not null) as phase_grade_ratio
    from ledger_piece
    group by hold, hour_at
),

kinds as (
    select
        piece.hold,
        piece.hour_at,
        piece.from_at,
        piece.until_at,
        piece.piece_seconds,
        piece.share,
        piece.is_shared,
        piece.is_before_ready,
        piece.is_in_grace,
        piece.is_floor,
        piece.phase,
        piece.first_at,
        piece.last_at,
        piece.read_seconds,
        piece.interval_seconds,
        piece.gpu_util_ratio,
        piece.sm_active_ratio,
        piece.grade_ratio,
        piece.productive_from_ratio,
        piece.fb_used_bytes / nullif(piece.fb_total_bytes, 0) as fb_used_ratio,
        piece.power_watts,
        piece.is_contradicted,
        piece.signal,
        piece.is_power_checked,
        coalesce(piece.is_unsure, false) as is_unsure,
        piece.is_tensor_graded,
        case
            when piece.activity is null then null
            when piece.phase <> '' then case when piece.activity in ('idle', 'serving') then 'quiet' else 'active' end
            when still_minutes.job is not null and piece.is_busy then 'stalled'
            else piece.activity
        end as run_kind,
        coalesce(still_minutes.is_by_steps and piece.phase = '' and piece.activity is not null, false) as is_by_steps,
        piece.grade_ratio is not null as is_graded
    from ledger_piece as piece
    left join still_minutes on piece.job = still_minutes.job and piece.minute = still_minutes.minute
),

-- What must stay the same throughout a run, and throughout a span, as one number each: comparing is cheap.
marked as (
    select
        *,
        case when run_kind is not null then hash(run_kind, run_kind in ('idle', 'quiet') and is_in_grace) end as run_mark,
        case when run_kind is not null then last_at end as seen_at,
        hash(
            run_kind, hour_at, share, signal, is_shared, is_power_checked, is_contradicted, is_before_ready, is_in_grace, is_floor, phase, is_by_steps, is_graded, is_unsure, is_tensor_graded
        ) as span_mark
    from kinds
),

bounded as (
    select
        *,
        case
            when run_kind is null then 0
            when
                (run_mark is distinct from lag(run_mark ignore nulls) over of_hold)
                or epoch(first_at - lag(seen_at ignore nulls) over of_hold) > 3 * interval_seconds
                then 1
            else 0
        end as is_new_run,
        ((span_mark is distinct from lag(span_mark) over of_hold)
        or (from_at is distinct from lag(until_at) over of_hold))::integer as is_new_span
    from marked
    window of_hold as (partition by hold order by from_at)
),

numbered as (
    select
        *,
        sum(is_new_run) over so_far as run,
        sum(greatest(is_new_span, is_new_run)) over so_far as span
    from bounded
    window so_far as (partition by hold order by from_at rows unbounded preceding)
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

-- Everything that decides a state is the same throughout a span, but for the run that it belongs to.
spans as (
    select
        hold,
        span,
        any_value(run) as run,
        any_value(run_kind) as run_kind,
        any_value(hour_at) as hour_at,
        min(from_at) as from_at,
        max(until_at) as until_at,
        any_value(share) as share,
        any_value(signal) as signal,
        any_value(is_shared) as is_shared,
        any_value(is_power_checked) as is_power_checked,
        any_value(is_contradicted) as is_contradicted,
        any_value(is_before_ready) as is_before_ready,
        any_value(is_in_grace) as is_in_grace,
        any_value(is_floor) as is_floor,
        any_value(phase) as phase,
        any_value(is_by_steps) as is_by_steps,
        any_value(is_graded) as is_graded,
        any_value(is_unsure) as is_unsure,
        any_value(is_tensor_graded) as is_tensor_graded,
        any_value(productive_from_ratio) as productive_from_ratio,
        sum(piece_seconds) as span_seconds,
        coalesce(sum(piece_seconds) filter (where read_seconds > 0), 0) / 60 as observed_minutes,
        sum(gpu_util_ratio * piece_seconds) / sum(piece_seconds) filter (where gpu_util_ratio is not null) as gpu_util_ratio,
        sum(sm_active_ratio * piece_seconds) / sum(piece_seconds) filter (where sm_active_ratio is not null) as sm_active_ratio,
        sum(fb_used_ratio * piece_seconds) / sum(piece_seconds) filter (where fb_used_ratio is not null) as fb_used_ratio,
        sum(power_watts * piece_seconds) / sum(piece_seconds) filter (where power_watts is not null) as power_watts
    from numbered
    group by hold, span
),

judged as (
    select
        spans.*,
        hours.coverage_ratio,
        runs.kind_of_run,
        spans.run_kind is null and spans.from_at < runs.run_until_at as is_bridged,
        case
            when is_before_ready and coalesce(run_kind, 'idle') in ('idle', 'quiet') then 'alloc_starting'
            when run_kind is null or hours.coverage_ratio < 0.5 then 'alloc_unknown'
            when run_kind = 'serving' then 'alloc_low'
            when run_kind in ('idle', 'quiet') and is_in_grace then 'alloc_starting'
            when run_kind in ('idle', 'quiet') and is_floor then 'alloc_standby'
            when run_kind = 'idle' and run_seconds >= 1800 then 'alloc_idle'
            when run_kind in ('idle', 'quiet') then 'alloc_low'
            when run_kind = 'stalled' and run_seconds >= 600 then 'alloc_stalled'
            when is_shared or not is_graded then 'alloc_ungraded'
            when case when phase = '' then hours.hour_grade_ratio else hours.phase_grade_ratio end < productive_from_ratio then 'alloc_low'
            else 'alloc_productive'
        end as state
    from spans
    inner join runs on spans.hold = runs.hold and spans.run = runs.run
    inner join hours on spans.hold = hours.hold and spans.hour_at = hours.hour_at
)

select
    hold,
    hour_at,
    from_at,
    until_at,
    span_seconds,
    share,
    state,
    case
        when state <> 'alloc_low' then ''
        when run_kind = 'serving' then 'serving'
        else phase
    end as cause,
    observed_minutes,
    gpu_util_ratio,
    sm_active_ratio,
    fb_used_ratio,
    power_watts,
    coverage_ratio,
    case
        when (is_before_ready and state = 'alloc_starting') or coverage_ratio < 0.5 then null
        when is_bridged then case when kind_of_run = 'stalled' then 'active' else kind_of_run end
        when run_kind = 'stalled' then 'active'
        else run_kind
    end as activity,
    case
        when is_before_ready and state = 'alloc_starting' then 'not_ready'
        when coverage_ratio < 0.5 then 'coverage'
        when state = 'alloc_unknown' and is_contradicted then 'contradictory'
        when state = 'alloc_unknown' and is_unsure then 'no_power'
        when state = 'alloc_unknown' then 'no_reading'
        else
            signal
            || case when is_power_checked then '+power' else '' end
            || case when is_tensor_graded and state in ('alloc_productive', 'alloc_low') then '+tensor_active' else '' end
            || case when is_by_steps then '+steps' else '' end
            || case when run_kind = 'serving' then '+serving' else '' end
            || case when phase <> '' then '+phase' else '' end
            || case when is_contradicted then '+profiling_contradicted' else '' end
            || case when is_shared then '+shared_card' else '' end
    end as basis
from judged;
