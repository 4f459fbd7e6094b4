-- name: fill_events(low_at, high_at)!
-- Write the staged quality events that are not written yet.
-- Grain: one row per ts, source, subject, kind and detail.
-- Reads: staged, quality_event
-- Writes: quality_event
-- Units: count
-- Ignores: events that are known.
insert into quality_event by name
select *
from staged
anti join (
    from quality_event
    where ts between :low_at::timestamptz and :high_at::timestamptz
) as existing using (ts, source, subject, kind, detail);
