-- name: pod_now()!
-- The pods of a batch as they follow from all that was said of them: of each column what was said last.
-- Grain: one row per pod (uid).
-- Reads: pod_said_now
-- Writes: pod_now
-- Units: count of its resource
-- Ignores: what was said of an earlier pod (another created_at) under the same uid. The start is the earliest that was said, except that a uid which only repeats the name (cluster/namespace/pod) does not tell a pod from its predecessor without created_at. The end is the earliest that was said since the pod was last known to run; a pod that runs again has none.
create or replace temp table pod_now as
with said as (
    select
        *,
        phase in ('Succeeded', 'Failed') as is_over,
        uid = cluster || '/' || namespace || '/' || pod as is_name
    from pod_said_now
    qualify coalesce(created_at = max(created_at) over (partition by uid), true)
),

turns as (
    select
        uid,
        max(seen_at) filter (where is_over) as over_at,
        max(seen_at) filter (where not is_over) as live_at,
        max(seen_at) filter (where not is_over and ended_at is null) as running_at
    from said
    group by uid
),

told as (
    select said.*, turns.live_at, turns.running_at, coalesce(turns.over_at >= turns.live_at, turns.over_at is not null) as has_ended
    from said
    inner join turns using (uid)
),

folded as (
    select
        uid,
        arg_max(cluster, (seen_at, cluster)) as cluster,
        arg_max(namespace, (seen_at, namespace)) as namespace,
        arg_max(pod, (seen_at, pod)) as pod,
        arg_max(node, (seen_at, node)) as node,
        arg_max(workload_id, (seen_at, workload_id)) as workload_id,
        arg_max(gpu_count, (seen_at, gpu_count)) as gpu_count,
        arg_max(resource, (seen_at, resource)) as resource,
        arg_max(phase, (seen_at, phase)) filter (where is_over = has_ended) as phase,
        arg_max(owner_kind, (seen_at, owner_kind)) as owner_kind,
        arg_max(owner_name, (seen_at, owner_name)) as owner_name,
        arg_max(labels, (seen_at, labels)) as labels,
        max(created_at) as created_at,
        case
            when bool_or(is_name)
                then
                    coalesce(
                        min(started_at) filter (where created_at is not null), arg_max(started_at, (seen_at, started_at))
                    )
            else min(started_at)
        end as started_at,
        case
            when bool_or(has_ended)
                then
                    coalesce(
                        min(ended_at) filter (where is_over and coalesce(seen_at >= live_at, true)),
                        arg_max(ended_at, (seen_at, ended_at)) filter (where phase is null)
                    )
            else
                arg_max(ended_at, (seen_at, ended_at)) filter (
                    where coalesce(not is_over, true) and coalesce(seen_at >= running_at, true)
                )
        end as ended_at,
        max(seen_at) as seen_at
    from told
    group by uid
)

select * replace (case when ended_at < started_at then started_at else ended_at end as ended_at) from folded;
