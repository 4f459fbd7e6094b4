-- name: ledger_hold(from_at, to_at)!
-- Who held which share of which card when: the scheduler's allocations, and where a node has none, what sources saw and what pods ask for.
-- Grain: one row per allocation, per stay of a sighted pod, and per card of a pod that nobody saw.
-- Reads: allocation, workload, ledger_stay, ledger_unseen
-- Writes: ledger_hold
-- Units: share of a physical GPU
-- Ignores: pods that hold only CPU. `hold` and `job` number the rows and the workloads of this build: sorting by them is cheap. A pod of which nothing says whose it is is its own workload, and its namespace its tenant; of a Slurm job its steps are the job.
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
        ended_at,
        '' as namespace,
        true as is_placed
    from allocation
    where gpu_uuid is not null
),

observed as (
    select
        concat_ws('/', gpu_uuid, slice_id, holder, epoch_ms(started_at)) as allocation_id,
        coalesce(
            workload_id,
            concat_ws('/', namespace, case when namespace = 'slurm' then regexp_replace(pod, '^(\d+(_\d+)?)([.+]\w+)*$', '\1') else pod end)
        ) as workload_id,
        pod,
        node,
        gpu_uuid,
        slice_id,
        share,
        started_at,
        stay_from_at as ready_at,
        ended_at,
        namespace,
        true as is_placed
    from ledger_stay
    union all by name
    select
        concat_ws('/', gpu_uuid, uid) as allocation_id,
        coalesce(workload_id, concat_ws('/', namespace, pod)) as workload_id,
        pod,
        node,
        gpu_uuid,
        '' as slice_id,
        1.0 as share,
        started_at,
        begun_at as ready_at,
        ended_at,
        namespace,
        is_placed
    from ledger_unseen
),

known as (
    select
        holds.* exclude (namespace),
        coalesce(workload.tenant, holds.namespace) as tenant,
        coalesce(workload."user", '') as "user",
        coalesce(workload.queue, '') as queue,
        coalesce(workload.stage, 'other') as stage,
        coalesce(workload.kind, 'unknown') as kind,
        coalesce(workload.min_replicas, 0) as min_replicas
    from (
        select * from scheduled
        union all by name
        select * from observed
    ) as holds
    left join workload using (workload_id)
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
