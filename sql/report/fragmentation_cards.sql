-- name: fragmentation_cards(at)
-- What nobody holds of each card in service at an instant.
-- Grain: one row per card in service.
-- Columns: gpu_uuid varchar, node varchar, slot bigint, model varchar, pool varchar, is_set_aside boolean,
--   free_gpus double, free_state varchar, free_cause varchar
-- Reads: state_span, asset, condition, allocation
-- Units: GPUs; `free_state` and `free_cause` are the ledger's, NULL where it does not reach or nothing is free
-- Ignores: nothing. `is_set_aside` marks spares and cards under a condition, whose free share is not to be counted.
-- Order: node, slot, gpu_uuid
select
    gpu_uuid,
    node,
    slot,
    model,
    pool,
    is_set_aside,
    case when is_set_aside then 0 else free_gpus end as free_gpus,
    free_state,
    free_cause
from card_room(:at::timestamptz)
order by node, slot, gpu_uuid;
