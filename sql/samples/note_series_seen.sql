-- name: note_series_seen(received_before_at)!
-- Note when series were last written, before the samples that say so are removed.
-- Grain: one row per series_id.
-- Reads: sample
-- Writes: series
-- Units: none
-- Ignores: samples that stay.
update series
set last_seen_at = newest.received_at
from (
    select series_id, max(received_at) as received_at
    from sample
    where received_at < :received_before_at::timestamptz
    group by series_id
) as newest
where series.series_id = newest.series_id and newest.received_at > series.last_seen_at;
