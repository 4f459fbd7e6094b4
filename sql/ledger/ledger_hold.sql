-- name: ledger_hold(from_at, to_at)!
-- Who held which share of which card when: the scheduler's allocations, and where a node has none, what sources saw.
-- Grain: one row per allocation (or run of sightings of one pod on one slice).
-- Reads: allocation, workload, holding
-- Writes: ledger_hold
-- Units: share of a physical GPU
-- Ignores: pods that hold only CPU. `hold` and `job` number the rows and the workloads of this build: sorting by them is cheap. A run of sightings ends one interval after its last, and breaks after three missed ones.
create or replace temp table ledger_hold as
with scheduled as (
    select
        allocation_id,
        workload_id,
        pod,
        node,
        gpu_uuid,
        slice_id,
        share,
        started_at,
        ready_at,
        ended_at
    from allocation
    where gpu_uuid is not null
),

sighted as (
    select
        *,
        case
            when
                (share is distinct from lag(share) over of_pod)
                or epoch(ts - lag(ts) over of_pod) > 3 * interval_seconds
                then 1
            else 0
        end as is_new_run
    from holding
    where
        node not in (select node from scheduled)
        and ts between :from_at::timestamptz - interval 1 day and :to_at::timestamptz
    window of_pod as (partition by gpu_uuid, slice_id, namespace, pod order by ts)
),

runs as (
    select *, sum(is_new_run) over (partition by gpu_uuid, slice_id, namespace, pod order by ts rows unbounded preceding) as run
    from sighted
),

observed as (
    select
        concat_ws('/', gpu_uuid, slice_id, namespace, pod, epoch_ms(min(ts))) as allocation_id,
        concat_ws('/', namespace, pod) as workload_id,
        pod,
        any_value(node) as node,
        gpu_uuid,
        slice_id,
        any_value(share) as share,
        min(ts) as started_at,
        min(ts) as ready_at,
        max(ts) + to_seconds(max(interval_seconds)) as ended_at,
        namespace as tenant
    from runs
    group by gpu_uuid, slice_id, namespace, pod, run
),

known as (
    select
        scheduled.*,
        coalesce(workload.tenant, '') as tenant,
        coalesce(workload."user", '') as "user",
        coalesce(workload.queue, '') as queue,
        coalesce(workload.stage, 'other') as stage,
        coalesce(workload.kind, 'unknown') as kind,
        coalesce(workload.min_replicas, 0) as min_replicas
    from scheduled
    left join workload using (workload_id)
    union all by name
    select *, '' as "user", '' as queue, 'other' as stage, 'unknown' as kind, 0 as min_replicas
    from observed
),

floors as (
    select
        younger.allocation_id,
        -- A pod belongs to the floor from the moment when fewer than min_replicas older pods are left.
        list_reverse_sort(list(coalesce(older.ended_at, 'infinity'::timestamptz)))[any_value(younger.min_replicas)] as floor_from_at
    from known as younger
    inner join (select distinct workload_id, pod, started_at, ended_at from known where min_replicas > 0) as older
        on
            younger.workload_id = older.workload_id
            and (older.started_at, older.pod) < (younger.started_at, younger.pod)
    where younger.min_replicas > 0
    group by younger.allocation_id
)

select
    known.*,
    row_number() over ()::integer as hold,
    dense_rank() over (order by known.workload_id)::integer as job,
    case
        when known.min_replicas > 0 then greatest(coalesce(floors.floor_from_at, known.started_at), known.started_at)
    end as floor_from_at,
    known.ready_at + case when known.kind = 'training' then interval 15 minute else interval 10 minute end as graced_until_at
from known
left join floors using (allocation_id)
where
    known.share > 0
    and known.started_at < :to_at::timestamptz
    and coalesce(known.ended_at > :from_at::timestamptz, true)
    and coalesce(known.ended_at > known.started_at, true);
