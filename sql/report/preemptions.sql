-- name: preemptions(from_at, to_at)
-- Work that was put off to make room, or evicted: when, why, for whom, and how long it had run.
-- Grain: one row per event.
-- Columns: ts timestamptz, scheduler varchar, workload_id varchar, pod varchar, kind varchar, reason varchar,
--   beneficiary varchar, queue varchar, tenant varchar, gpus double, ran_hours double, ran_gpu_hours double
-- Reads: workload_event, workload
-- Units: GPUs of the whole workload; hours since its last start, which may be lost; NULL where no start is known
-- Ignores: nothing.
-- Order: the newest first, then workload_id, kind, pod
with events as (
    select
        *,
        max(ts) filter (where kind = 'started') over (partition by workload_id order by ts rows between unbounded preceding and 1 preceding) as begun_at
    from workload_event
    where ts < :to_at::timestamptz
)

select
    events.ts,
    coalesce(workload.scheduler, '') as scheduler,
    events.workload_id,
    events.pod,
    events.kind,
    events.reason,
    events.beneficiary,
    coalesce(workload.queue, '') as queue,
    coalesce(workload.tenant, '') as tenant,
    workload.pod_count * workload.num_gpu * workload.gpu_milli / 1000 as gpus,
    date_diff('microsecond', events.begun_at, events.ts) / 3600000000 as ran_hours,
    date_diff('microsecond', events.begun_at, events.ts) / 3600000000 * workload.pod_count * workload.num_gpu * workload.gpu_milli / 1000 as ran_gpu_hours
from events
left join workload using (workload_id)
where events.kind in ('preempted', 'evicted') and events.ts >= :from_at::timestamptz
order by events.ts desc, events.workload_id, events.kind, events.pod;
