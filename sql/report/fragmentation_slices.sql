-- name: fragmentation_slices(at)
-- The slices that are held at an instant on cards of which a part is free, with their profiles.
-- Grain: one row per card and slice.
-- Columns: gpu_uuid varchar, slice_id varchar, profile varchar
-- Reads: state_span, reading
-- Units: none; `profile` is NULL where no reading of the last hour names it
-- Ignores: slices that exist and nobody holds: they can be made anew.
-- Order: gpu_uuid, slice_id
with held as (
    select gpu_uuid, slice_id
    from ledger_at(:at::timestamptz)
    where slice_id <> '' and allocation_id <> ''
    group by all
),

seen as (
    select gpu_uuid, slice_id, arg_max(slice_profile, ts) as profile
    from reading
    where
        slice_id <> ''
        and slice_profile is not null
        and ts > :at::timestamptz - interval 1 hour
        and ts <= :at::timestamptz + interval 1 hour
    group by gpu_uuid, slice_id
)

select held.gpu_uuid, held.slice_id, seen.profile
from held
left join seen on held.gpu_uuid = seen.gpu_uuid and held.slice_id = seen.slice_id
order by held.gpu_uuid, held.slice_id;
