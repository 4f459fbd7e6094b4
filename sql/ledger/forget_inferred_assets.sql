-- name: forget_inferred_assets()!
-- Remove inferred assets before they are inferred anew, so that earlier evidence or a declared list takes effect.
-- Grain: one row per gpu_uuid.
-- Reads: asset
-- Writes: asset
-- Units: none
-- Ignores: declared and imported assets.
delete from asset where origin = 'inferred';
