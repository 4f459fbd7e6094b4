-- name: basis_matrix()!
-- GPU-hours by the state that they are in with all counters and the one that they would be in without some.
-- Grain: one row per pair of states.
-- Reads: basis_with, state_span
-- Writes: basis_matrix
-- Units: GPU-hours
-- Ignores: minutes that only one of the two ledgers covers.
create or replace temp table basis_matrix as
select
    stored.state as state_with,
    other.state as state_without,
    sum(stored.share * epoch_us(least(stored.until_at, other.until_at) - greatest(stored.from_at, other.from_at))) / 3.6e9 as gpu_hours
from basis_with as stored
inner join state_span as other
    on
        stored.gpu_uuid = other.gpu_uuid
        and stored.slice_id = other.slice_id
        and stored.allocation_id = other.allocation_id
        and stored.hour_at = other.hour_at
        and stored.from_at < other.until_at
        and stored.until_at > other.from_at
group by stored.state, other.state
order by state_with, state_without;
