-- name: samples_to_assemble(upto_seq, low_at, high_at)
-- All fragments of the rows that the waiting samples belong to: a card at an instant, as one source saw it.
-- Grain: one row per series_id and ts.
-- Reads: sample, series, sample_progress
-- Writes: nothing; it is asked by the service itself, on the rows that it staged
-- Units: none
-- Ignores: samples kept after upto_seq, and series that name no card.
with touched as (
    select distinct series.gpu_uuid, sample.ts, series.source
    from sample
    inner join series using (series_id)
    where
        sample.seq > (select assembled_seq from sample_progress)
        and sample.seq <= :upto_seq::bigint
        and sample.ts between :low_at::timestamptz and :high_at::timestamptz
        and series.gpu_uuid <> ''
)

select series_id, ts, sample.value, sample.received_at, gpu_uuid, source
from sample
inner join series using (series_id)
semi join touched using (gpu_uuid, ts, source)
where
    sample.seq <= :upto_seq::bigint
    and sample.ts between :low_at::timestamptz and :high_at::timestamptz;
