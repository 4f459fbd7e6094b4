-- name: ledger_pod(from_at, to_at)!
-- When each pod really ran: from its start to the end of its containers, however long the object and its labels linger.
-- Grain: one row per pod (uid) that ran in the window or in the day before it.
-- Reads: pod
-- Writes: ledger_pod
-- Units: count of its resource
-- Ignores: pods that never started. What is not known to have ended ran 15 minutes beyond its last listing at least. A pod that is listed after it "ended" by not being listed had not ended. Of pods of one name the later ends the earlier; those that begin together on different nodes are parts of one job (Slurm's), which run side by side.
create or replace temp table ledger_pod as
with lives as (
    select
        uid,
        cluster,
        namespace,
        pod,
        node,
        workload_id,
        gpu_count,
        resource,
        coalesce(started_at, case when phase = 'Running' then created_at end) as begun_at,
        case
            when phase in ('Succeeded', 'Failed') then coalesce(ended_at, seen_at)
            when phase is null or ended_at >= seen_at then ended_at
        end as ended_at,
        seen_at + interval 15 minute as listed_until_at
    from pod
),

terms as (
    select
        * exclude (ended_at),
        -- A sighting before the first known start is that pod's: clocks differ.
        case when begun_at = min(begun_at) over (partition by cluster, namespace, pod) and lag(uid) over of_part is null then '-infinity'::timestamptz else begun_at end as term_from_at,
        least(ended_at, lead(begun_at) over of_part, min(begun_at) over later) as ended_at
    from lives
    where begun_at is not null
    window
        of_part as (partition by cluster, namespace, pod, begun_at, node order by uid),
        later as (
            partition by cluster, namespace, pod order by begun_at
            range between interval 1 microsecond following and unbounded following
        )
)

select *, coalesce(ended_at, listed_until_at) as known_until_at
from terms
where begun_at < :to_at::timestamptz and coalesce(ended_at > :from_at::timestamptz - interval 1 day, true);
