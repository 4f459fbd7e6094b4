-- name: fault_note(noted_at)!
-- Faults that were not known: written once, with the instant with which they were recognised.
-- Grain: one row per fault.
-- Reads: fault_group, fault
-- Writes: fault
-- Units: none
-- Ignores: what belongs to a known fault (within 5 min of it).
insert into fault by name
select news.*, :noted_at::timestamptz as noted_at
from fault_group as news
anti join fault as known
    on
        news.gpu_uuid = known.gpu_uuid
        and (known.gpu_uuid <> '' or news.node = known.node)
        and news.kind = known.kind
        and news.code = known.code
        and news.ts <= known.last_at + interval 5 minute
        and news.last_at >= known.ts - interval 5 minute;
