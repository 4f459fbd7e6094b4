-- name: reading_energy(from_at, to_at)!
-- What the energy counter of each card rose by, whoever read it, by the hour and the source that saw the rise.
-- Grain: one row per card, slice, source, node and hour of the window in which the counter was read.
-- Reads: reading, power_limit
-- Writes: reading_energy
-- Units: joules, seconds, watts; hours counted from 1970, instants in seconds from 1970
-- Ignores: a rise of more than 1.5 times what the card can draw in the time (counted, not added), and a rise over more than a day without a reading. `power_limit` says what each model can draw. A rise belongs to the hour in which it was seen.
create or replace temp table reading_energy as
with seen as (
    select distinct gpu_uuid, slice_id
    from reading
    where ts >= :from_at::timestamptz and ts < :to_at::timestamptz and energy_joules is not null
),

-- The rules look at four readings before. Who has fewer in the hour before has them further back, if at all.
near as (
    select gpu_uuid, slice_id
    from reading
    where ts >= :from_at::timestamptz - interval 1 hour and ts < :from_at::timestamptz and energy_joules is not null
    group by gpu_uuid, slice_id
    having count(*) >= 4
),

far as (
    select gpu_uuid, slice_id
    from seen
    anti join near using (gpu_uuid, slice_id)
),

known as materialized (
    select ts, source, node, gpu_uuid, slice_id, model, power_limit_watts, energy_joules
    from reading
    where
        ts >= :from_at::timestamptz - interval 1 hour
        and ts < :to_at::timestamptz + interval 1 hour
        and energy_joules is not null
    union all
    select ts, source, node, gpu_uuid, slice_id, model, power_limit_watts, energy_joules
    from reading
    semi join far using (gpu_uuid, slice_id)
    where
        ts >= :from_at::timestamptz - interval 1 day
        and ts < :from_at::timestamptz - interval 1 hour
        and energy_joules is not null
),

feeds as (
    select
        *,
        dense_rank() over (order by gpu_uuid, slice_id)::integer as card,
        row_number() over (order by gpu_uuid, slice_id, source, node)::integer as feed
    from (select distinct source, node, gpu_uuid, slice_id from known)
),

counted as materialized (
    select
        feeds.card,
        feeds.feed,
        epoch(known.ts) as instant,
        known.energy_joules as shown,
        1.5 * coalesce(of_model.watts, known.power_limit_watts, of_any.watts) as most_watts,
        lag(shown) over of_card as before_shown,
        lag(instant) over of_card as before_at,
        shown - before_shown > most_watts * (instant - before_at) as is_steep
    from known
    inner join feeds using (source, node, gpu_uuid, slice_id)
    left join power_limit as of_model on known.model = of_model.name
    inner join power_limit as of_any on of_any.name is null
    window of_card as (partition by feeds.card order by instant, shown, feeds.feed)
),

-- Cards whose counter only rises, and never steeply, need no more than differences.
odd as (
    select distinct card
    from counted
    where shown < before_shown or is_steep
),

-- A value above all around it that the card cannot have reached is no reading of the counter.
marked as materialized (
    select
        *,
        coalesce(
            is_steep
            and lead(shown) over of_card < shown
            and count(*) over four_before >= 2
            and shown - max(shown) over four_before > most_watts * (instant - min(instant) over four_before),
            false
        ) as is_spike
    from counted
    semi join odd using (card)
    window
        of_card as (partition by card order by instant, shown, feed),
        four_before as (partition by card order by instant, shown, feed rows between 4 preceding and 1 preceding)
),

-- A fall is a stale copy where the next reading is back at the old level, else a reset: where the card may have drawn
-- what is shown since it began anew, or where the next three readings all stay below.
falls as (
    select
        * exclude (before_shown, before_at),
        lag(instant) over of_card as before_at,
        lag(shown) over of_card as before_shown,
        coalesce(instant - before_at > 86400, true) as is_first,
        coalesce(
            not is_first
            and shown < before_shown
            and coalesce(lead(shown) over of_card < before_shown, true)
            and (
                shown <= most_watts * (instant - before_at)
                or (count(*) over three_after = 3 and max(shown) over three_after < before_shown)
            ),
            false
        ) as is_reset
    from marked
    where not is_spike
    window
        of_card as (partition by card order by instant, shown, feed),
        three_after as (partition by card order by instant, shown, feed rows between 1 following and 3 following)
),

runs as (
    select
        *,
        count(*) filter (where is_first or is_reset) over (
            partition by card
            order by instant, shown, feed
            rows between unbounded preceding and current row
        ) as run
    from falls
),

levels as materialized (
    select
        *,
        max(shown) over (
            partition by card, run
            order by instant, shown, feed
            rows between unbounded preceding and 1 preceding
        ) as level
    from runs
),

-- Only a new level is a rise. It is judged from the level before, and from up to four before: sources that keep a
-- value for a while show it at uneven distances.
climbed as (
    select
        feed,
        instant,
        is_reset,
        case when level is not null then shown - level when is_reset then shown end as joules,
        joules > most_watts * (instant - coalesce(lag(instant) over of_run, before_at))
        and coalesce(shown - first_value(shown) over four_before > most_watts * (instant - first_value(instant) over four_before), true) as is_impossible
    from levels
    where level is null or shown > level
    window
        of_run as (partition by card, run order by instant, shown, feed),
        four_before as (partition by card, run order by instant, shown, feed rows between 4 preceding and 1 preceding)
),

rises as (
    select feed, instant, false as is_reset, shown - before_shown as joules, false as is_impossible
    from counted
    anti join odd using (card)
    where before_shown is not null and instant - before_at <= 86400
    union all
    select feed, instant, is_reset, joules, is_impossible
    from climbed
    where joules is not null
    union all
    select feed, instant, false, 0, false
    from levels
    where shown <= level
    union all
    select feed, instant, false, 0, true
    from marked
    where is_spike
)

select
    feeds.* exclude (card, feed),
    floor(instant / 3600)::integer as hour,
    sum(joules) filter (where not is_impossible) as energy_joules,
    count(*) filter (where is_reset) as energy_reset_count,
    count(*) filter (where is_impossible) as energy_impossible_count
from rises
inner join feeds using (feed)
where instant >= epoch(:from_at::timestamptz) and instant < epoch(:to_at::timestamptz)
group by all;
