-- name: fragmentation_rate(at)
-- 碎片率: 1 − k × (whole free slots of k GPUs) ÷ free GPUs, for 8 GPUs and for every number of whole GPUs that work asks for.
-- Grain: one row per pool and k.
-- Columns: pool varchar, gpu_count_wanted bigint, free_gpus double, slot_count bigint, fragmentation_ratio double
-- Reads: state_span, workload
-- Units: GPUs; a slot is k wholly free cards of one node
-- Ignores: CPU, memory and card models (the stranded state knows them); spare and unavailable cards. NULL where nothing is free.
-- Order: pool, gpu_count_wanted
with free_cards as (
    select pool, node, gpu_uuid, sum(share) as share
    from state_span
    where
        starts_with(state, 'free_')
        and from_at <= :at::timestamptz
        and until_at > :at::timestamptz
    group by pool, node, gpu_uuid
),

free_nodes as (
    select pool, node, sum(share) as free_gpus, count(*) filter (where share > 0.999999) as whole_count
    from free_cards
    group by pool, node
),

wanted as (
    select 8::bigint as gpu_count_wanted
    union
    select num_gpu
    from workload
    where gpu_milli = 1000 and num_gpu > 0
)

select
    free_nodes.pool,
    wanted.gpu_count_wanted,
    sum(free_nodes.free_gpus) as free_gpus,
    sum(free_nodes.whole_count // wanted.gpu_count_wanted)::bigint as slot_count,
    1 - wanted.gpu_count_wanted * sum(free_nodes.whole_count // wanted.gpu_count_wanted)
    / nullif(sum(free_nodes.free_gpus), 0) as fragmentation_ratio
from free_nodes
cross join wanted
group by free_nodes.pool, wanted.gpu_count_wanted
order by free_nodes.pool, wanted.gpu_count_wanted;
