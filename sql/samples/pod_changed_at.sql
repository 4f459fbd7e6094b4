-- name: pod_changed_at(now)
-- From when on the pods of a batch say something else than the stored ones.
-- Grain: one row.
-- Reads: pod, pod_now
-- Writes: nothing
-- Units: none
-- Ignores: pods that never began; labels and owners, which make no hour. A pod that is seen again after it was known to run no longer (15 minutes after it was listed, as in ledger_pod) changes what was built meanwhile.
with lives as (
    select false as is_new, pod.* from pod
    semi join pod_now using (uid)
    union all by name
    select true as is_new, pod_now.* from pod_now
),

spans as (
    select
        *,
        coalesce(started_at, case when phase = 'Running' then created_at end) as begun_at,
        case
            when phase in ('Succeeded', 'Failed') then coalesce(ended_at, seen_at)
            when phase is null or ended_at >= seen_at then ended_at
        end as over_at,
        seen_at + interval 15 minute as listed_until_at,
        row(cluster, namespace, pod, node, workload_id, gpu_count, resource) as what
    from lives
),

pairs as (
    select
        new.begun_at,
        new.over_at,
        new.seen_at,
        old.uid is not null as is_known,
        old.begun_at as old_begun_at,
        old.over_at as old_over_at,
        old.seen_at as old_seen_at,
        coalesce(old.over_at, old.listed_until_at) as old_until_at,
        (new.what is distinct from old.what) or (new.begun_at is distinct from old.begun_at) as is_other
    from (from spans where is_new) as new
    left join (from spans where not is_new) as old using (uid)
)

select
    min(
        case
            when begun_at is null and old_begun_at is null then null
            when not is_known then begun_at
            when is_other then least(begun_at, old_begun_at)
            when over_at is distinct from old_over_at then greatest(begun_at, least(over_at, old_over_at, old_until_at))
            when over_at is null and seen_at > old_seen_at and old_until_at < greatest(seen_at, :now::timestamptz)
                then greatest(begun_at, old_seen_at)
        end
    ) as changed_at
from pairs;
