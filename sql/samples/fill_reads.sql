-- name: fill_reads(low_at, high_at)!
-- Write one good read for each staged node, source and instant: the cards that its readings show, slices without a known card left out.
-- Grain: one row per node, source and ts.
-- Reads: staged, reading
-- Writes: source_read
-- Units: count
-- Ignores: nodes of which no reading is left.
insert into source_read by name
select
    ts,
    node,
    source,
    'device' as scope,
    true as ok,
    null::double as interval_seconds,
    count(distinct gpu_uuid) filter (where not starts_with(gpu_uuid, 'MIG-')) as device_count,
    0 as skipped_lines,
    null::varchar as error
from reading
semi join staged using (node, source, ts)
where ts between :low_at::timestamptz and :high_at::timestamptz
group by ts, node, source;
