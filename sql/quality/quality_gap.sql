-- name: quality_gap(from_at, to_at)!
-- Write which nodes' sources could not be read and why, and lines of their pages that are no samples.
-- Grain: one row per hour, source, node and error.
-- Reads: source_read, quality_event, reading_hour, asset, scheduler_node
-- Writes: quality
-- Units: `gap`: reads that failed, and the seconds that they stand for; `refused_line`: lines
-- Ignores: lines that the reader has told of with their reasons. A place that was never read has not named its node: the subject is then the target.
insert into quality by name
with failed as (
    select
        date_trunc('hour', ts) as hour_at,
        source,
        node,
        coalesce(error, '') as error,
        count(*) as read_count,
        sum(interval_seconds) as seconds
    from source_read
    where ts >= :from_at::timestamptz and ts < :to_at::timestamptz and not ok
    group by all
),

skipped as (
    select date_trunc('hour', ts) as hour_at, source, node, sum(skipped_lines)::bigint as line_count
    from source_read
    where ts >= :from_at::timestamptz and ts < :to_at::timestamptz and skipped_lines > 0
    group by all
),

nodes as (
    select node from reading_hour
    union
    select node from asset
    union
    select node from scheduler_node
),

told as (
    select distinct date_trunc('hour', ts) as hour_at, source
    from quality_event
    where ts >= :from_at::timestamptz and ts < :to_at::timestamptz and kind = 'refused_line'
)

select
    hour_at,
    source,
    case when node in (select node from nodes) then 'node' else 'target' end as subject_kind,
    node as subject,
    'gap' as kind,
    'read failed: ' || error as detail,
    read_count as count,
    seconds as value
from failed
union all
select hour_at, source, 'node', node, 'refused_line', '', line_count, null
from skipped
anti join told using (hour_at, source);
