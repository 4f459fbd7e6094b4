-- name: preemptions(from_at, to_at)
-- Work that was put off to make room, or evicted: when, why, for whom, and how long it had run.
-- Grain: one row per event.
-- Columns: ts timestamptz, scheduler varchar, workload_id varchar, pod varchar, kind varchar, reason varchar,
--   beneficiary varchar, queue varchar, tenant varchar, gpus double, ran_hours double, ran_gpu_hours double
-- Reads: workload_event, workload, pod
-- Units: GPUs of the pod, of the whole workload where the event names no pod; hours since its last start, which may be lost;
--   NULL where no start is known, or it had stopped since
-- Ignores: nothing.
-- Order: the newest first, then workload_id, kind, pod
with ends as (
    select *
    from workload_event
    where kind in ('preempted', 'evicted') and ts >= :from_at::timestamptz and ts < :to_at::timestamptz
),

starts as (
    select ends.workload_id, ends.ts, ends.kind, ends.pod, before.ts as begun_at
    from ends
    inner join workload_event as before
        on ends.workload_id = before.workload_id and before.kind = 'started' and before.pod in ('', ends.pod) and before.ts <= ends.ts
    union all
    select ends.workload_id, ends.ts, ends.kind, ends.pod, pod.started_at
    from ends
    inner join pod on ends.workload_id = pod.workload_id and ends.pod = pod.pod and pod.started_at <= ends.ts
),

last_starts as (
    select workload_id, ts, kind, pod, max(begun_at) as begun_at
    from starts
    group by workload_id, ts, kind, pod
),

running as (
    select last_starts.*
    from last_starts
    anti join workload_event as stop
        on
            last_starts.workload_id = stop.workload_id
            and stop.kind in ('preempted', 'evicted', 'requeued', 'suspended', 'finished', 'failed', 'cancelled')
            and stop.pod in ('', last_starts.pod)
            and stop.ts > last_starts.begun_at
            and stop.ts < last_starts.ts
),

told as (
    select
        ends.*,
        date_diff('microsecond', running.begun_at, ends.ts) / 3600000000 as ran_hours
    from ends
    left join running using (workload_id, ts, kind, pod)
)

select
    told.ts,
    coalesce(workload.scheduler, '') as scheduler,
    told.workload_id,
    told.pod,
    told.kind,
    told.reason,
    told.beneficiary,
    coalesce(workload.queue, '') as queue,
    coalesce(workload.tenant, '') as tenant,
    case when told.pod = '' then workload.pod_count else 1 end * workload.num_gpu * workload.gpu_milli / 1000 as gpus,
    told.ran_hours,
    told.ran_hours * case when told.pod = '' then workload.pod_count else 1 end * workload.num_gpu * workload.gpu_milli / 1000 as ran_gpu_hours
from told
left join workload using (workload_id)
order by told.ts desc, told.workload_id, told.kind, told.pod;
