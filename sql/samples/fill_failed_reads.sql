-- name: fill_failed_reads(upto_seq, low_at, high_at)!
-- Write a failed read for each node of a target whose `up` is zero.
-- Grain: one row per node, source and ts.
-- Reads: sample, series, source_read, sample_progress
-- Writes: source_read
-- Units: none
-- Ignores: targets that never sent a device's series: nobody knows their nodes.
insert into source_read by name
select distinct
    sample.ts,
    card.node,
    card.source,
    'device' as scope,
    false as ok,
    null::double as interval_seconds,
    null::bigint as device_count,
    0 as skipped_lines,
    'the target was down' as error
from sample
inner join series using (series_id)
inner join series as card on series.target = card.target and series.source = card.source and card.gpu_uuid <> ''
where
    series.name = 'up'
    and sample.value = 0
    and card.node is not null
    and sample.seq > (select assembled_seq from sample_progress)
    and sample.seq <= :upto_seq::bigint
    and sample.ts between :low_at::timestamptz and :high_at::timestamptz
    and not exists (
        select 1
        from source_read as existing
        where
            existing.node = card.node
            and existing.source = card.source
            and existing.ts = sample.ts
            and existing.ts between :low_at::timestamptz and :high_at::timestamptz
    );
