-- name: consolidate_pods(at)
-- Every pod that holds a GPU at one instant: where, how much, and what it would lose if it were moved.
-- Grain: one row per workload, pod and node
-- Columns: workload_id varchar, pod varchar, node varchar, tenant varchar, kind varchar, gpus double, card_count bigint,
--   is_whole_cards boolean, cpu_milli bigint, memory_mib bigint, model_set varchar, is_gang boolean, min_replicas bigint,
--   running_pods bigint, node_count bigint, started_at timestamptz, checkpoint_at timestamptz, ends_at timestamptz
-- Reads: state_span, allocation, workload, checkpoint
-- Units: GPUs; `running_pods` and `node_count` are those of the whole workload
-- Ignores: pods without GPUs; an end that nobody knew at `at` cannot be seen here unless it was recorded. NULL `started_at` is not known.
-- Order: by workload_id, pod, node
with pods as (
    select
        workload_id,
        pod,
        node,
        min(tenant) as tenant,
        min(kind) as kind,
        sum(share) as gpus,
        count(distinct gpu_uuid) as card_count,
        min(share) > 1 - 1e-6 and max(slice_id) = '' as is_whole_cards
    from state_span
    where
        hour_at > :at::timestamptz - interval 1 hour
        and hour_at <= :at::timestamptz
        and from_at <= :at::timestamptz
        and until_at > :at::timestamptz
        and allocation_id <> ''
    group by workload_id, pod, node
),

held as (
    select
        workload_id,
        pod,
        node,
        sum(cpu_milli)::bigint as cpu_milli,
        sum(memory_mib)::bigint as memory_mib,
        min(started_at) as started_at,
        max(ended_at) as ends_at
    from allocation
    where started_at <= :at::timestamptz and coalesce(ended_at > :at::timestamptz, true)
    group by workload_id, pod, node
),

saved as (
    select
        workload_id,
        max(ts) as checkpoint_at
    from checkpoint
    where ts <= :at::timestamptz
    group by workload_id
),

wholes as (
    select
        workload_id,
        count(*) as running_pods,
        count(distinct node) as node_count
    from pods
    group by workload_id
)

select
    pods.workload_id,
    pods.pod,
    pods.node,
    pods.tenant,
    pods.kind,
    pods.gpus,
    pods.card_count,
    pods.is_whole_cards,
    coalesce(held.cpu_milli, workload.cpu_milli, 0) as cpu_milli,
    coalesce(held.memory_mib, workload.memory_mib, 0) as memory_mib,
    workload.model_set,
    coalesce(workload.is_gang, false) as is_gang,
    coalesce(workload.min_replicas, 0) as min_replicas,
    wholes.running_pods,
    wholes.node_count,
    coalesce(held.started_at, workload.started_at) as started_at,
    saved.checkpoint_at,
    coalesce(held.ends_at, workload.ended_at) as ends_at
from pods
inner join wholes on pods.workload_id = wholes.workload_id
left join held on pods.workload_id = held.workload_id and pods.pod = held.pod and pods.node = held.node
left join workload on pods.workload_id = workload.workload_id
left join saved on pods.workload_id = saved.workload_id
order by pods.workload_id, pods.pod, pods.node
