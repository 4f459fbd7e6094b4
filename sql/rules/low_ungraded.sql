-- name: low_ungraded(from_at, to_at)
-- GPU-hours that worked and that nothing graded, by model: what switching on counters would let be judged.
-- Grain: one row per model, and whether the card was shared by several pods.
-- Columns: model varchar, is_shared boolean, gpu_hours double, node_count bigint, nodes varchar[]
-- Reads: state_span
-- Units: GPU-hours
-- Ignores: all but alloc_ungraded. Of the nodes at most ten are named.
-- Order: gpu_hours descending, model, is_shared
select
    model,
    contains(basis, 'shared_card') as is_shared,
    sum(gpu_hours) as gpu_hours,
    count(distinct node) as node_count,
    list_slice(list_sort(list(distinct node)), 1, 10) as nodes
from state_span
where
    hour_at >= :from_at::timestamptz
    and hour_at < :to_at::timestamptz
    and state = 'alloc_ungraded'
group by all
order by gpu_hours desc, model, is_shared;
