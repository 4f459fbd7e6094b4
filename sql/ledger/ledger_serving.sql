-- name: ledger_serving(from_at, to_at)!
-- The minutes in which the server of a hold served requests, as it said itself.
-- Grain: one row per hold and minute.
-- Reads: engine_step, ledger_hold, pod, workload
-- Writes: ledger_serving
-- Units: minutes counted from 1970
-- Ignores: servers whose pod and workload nobody knows. A server is where it was said to be: by its pod, or by its workload, and then only while that has one pod. What one pod of a gang serves, all of them serve.
create or replace temp table ledger_serving as
with served as (
    select distinct
        cluster,
        namespace,
        pod,
        workload_id,
        unnest(range(epoch_us(served_from_at) // 60000000, (epoch_us(served_until_at) + 59999999) // 60000000))::integer as minute
    from engine_step(:from_at::timestamptz, :to_at::timestamptz)
    where served_from_at is not null
),

places as (
    select distinct cluster, namespace, pod, workload_id
    from served
),

-- Whose a pod is; of a pod that no scheduler tells, its own name where that is the only one of that name.
owned as (
    select
        places.*,
        coalesce(
            nullif(places.workload_id, ''),
            known.workload_id,
            alone.workload_id
        ) as owner
    from places
    left join (
        select cluster, namespace, pod, arg_max(coalesce(workload_id, concat_ws('/', namespace, pod)), seen_at) as workload_id
        from pod
        where pod in (select places.pod from places)
        group by all
    ) as known using (cluster, namespace, pod)
    left join (
        select pod, any_value(workload_id) as workload_id
        from ledger_hold
        where pod in (select places.pod from places where places.pod <> '')
        group by pod
        having count(distinct workload_id) = 1
    ) as alone using (pod)
),

held as (
    select
        hold.hold,
        hold.pod,
        hold.started_at,
        hold.ended_at,
        owned.cluster,
        owned.namespace,
        owned.pod as told_pod,
        owned.workload_id as told_workload_id,
        coalesce(workload.is_gang, false) as is_gang
    from owned
    inner join ledger_hold as hold on owned.owner = hold.workload_id
    left join workload on hold.workload_id = workload.workload_id
    where owned.pod in ('', hold.pod) or workload.is_gang
)

select distinct hold, minute
from (
    select
        held.hold,
        served.minute,
        held.told_pod <> '' or held.is_gang
        or min(held.pod) over of_minute = max(held.pod) over of_minute as is_sure
    from served
    inner join held
        on
            served.cluster = held.cluster
            and served.namespace = held.namespace
            and served.pod = held.told_pod
            and served.workload_id = held.told_workload_id
            and make_timestamptz((served.minute + 1)::bigint * 60000000) > held.started_at
            and coalesce(make_timestamptz(served.minute::bigint * 60000000) < held.ended_at, true)
    window of_minute as (partition by served.cluster, served.namespace, served.pod, served.workload_id, served.minute)
)
where is_sure;
