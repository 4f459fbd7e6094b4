-- name: samples_waiting()
-- How many samples wait to become rows, by the number under which they were kept.
-- Grain: one row per seq.
-- Reads: sample, sample_progress
-- Writes: nothing; it is asked by the service itself, on the rows that it staged
-- Units: count
-- Ignores: nothing.
select seq, count(*) as sample_count, min(ts) as low_at, max(ts) as high_at
from sample
where seq > (select assembled_seq from sample_progress)
group by seq
order by seq;
