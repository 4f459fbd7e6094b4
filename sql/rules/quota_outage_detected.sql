-- name: quota_outage_detected(from_at, to_at, normal_ratio, min_minutes)
-- Stretches in which no queue of the whole fleet ran anything although the fleet normally does.
-- Grain: one row per stretch of at least `min_minutes`
-- Columns: from_at timestamptz, until_at timestamptz
-- Reads: queue_state
-- Units: instants; `normal_ratio` is the share of the covered time in which the fleet must have run something
-- Ignores: time in which a queue that reported before and after did not report: that is missing, not an outage
-- Order: by from_at
with states_in_the_range as (
    select
        queue,
        running_gpus,
        greatest(ts, :from_at::timestamptz) as from_at,
        least(ts + to_microseconds((duration_seconds * 1000000)::bigint), :to_at::timestamptz) as until_at
    from queue_state
    where
        ts < :to_at::timestamptz
        and ts + to_microseconds((duration_seconds * 1000000)::bigint) > :from_at::timestamptz
),

life_of_each_queue as (
    select
        queue,
        min(from_at) as from_at,
        max(until_at) as until_at
    from states_in_the_range
    group by queue
),

changes as (
    select from_at as instant, running_gpus, 1 as reporting, 0 as living from states_in_the_range
    union all
    select until_at, -running_gpus, -1, 0 from states_in_the_range
    union all
    select from_at, 0, 0, 1 from life_of_each_queue
    union all
    select until_at, 0, 0, -1 from life_of_each_queue
),

changes_of_each_instant as (
    select
        instant,
        sum(running_gpus) as running_gpus,
        sum(reporting) as reporting,
        sum(living) as living
    from changes
    group by instant
),

running_totals as (
    select
        instant as from_at,
        lead(instant) over (order by instant) as until_at,
        round(sum(running_gpus) over (order by instant), 6) as running_gpus,
        sum(reporting) over (order by instant) as reporting,
        sum(living) over (order by instant) as living
    from changes_of_each_instant
),

fully_reported_time as (
    select
        from_at,
        until_at,
        running_gpus = 0 as is_dark,
        date_diff('microsecond', from_at, until_at) as microseconds
    from running_totals
    where until_at is not null and living > 0 and reporting >= living
),

normal_habit as (
    select
        coalesce(sum(microseconds) filter (where not is_dark), 0) >= :normal_ratio::double * sum(microseconds) as is_busy
    from fully_reported_time
),

dark_time as (
    select
        from_at,
        until_at,
        lag(until_at) over (order by from_at) as reached_at
    from fully_reported_time
    where is_dark and (select normal_habit.is_busy from normal_habit)
),

numbered_dark_time as (
    select
        *,
        count(*) filter (where reached_at is null or from_at > reached_at) over (
            order by from_at rows unbounded preceding
        ) as stretch
    from dark_time
),

dark_stretches as (
    select
        min(from_at) as from_at,
        max(until_at) as until_at
    from numbered_dark_time
    group by stretch
    having date_diff('microsecond', min(from_at), max(until_at)) >= :min_minutes::double * 60000000
)

select
    from_at,
    until_at
from dark_stretches
order by from_at
