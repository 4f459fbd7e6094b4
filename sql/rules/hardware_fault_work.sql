-- name: hardware_fault_work(from_at, to_at)
-- The work on the cards of each fault of the window: who it was, how large, whether the fault ended it, and when it went on.
-- Grain: one row per fault and workload.
-- Columns: ts timestamptz, node varchar, gpu_uuid varchar, kind varchar, code varchar, workload_id varchar, pod varchar,
--   told_by varchar, gang_gpus double, card_gpus double, tenant varchar, user varchar, queue varchar, work_kind varchar,
--   ready_at timestamptz, ended_at timestamptz, ended_gpus double, end_reason varchar, next_started_at timestamptz,
--   next_ready_at timestamptz, checkpoint_at timestamptz, has_checkpoints boolean
-- Reads: fault, allocation, workload, workload_event, holding, pod, state_span, checkpoint
-- Units: GPUs (shares of physical ones). `told_by` is allocation (a scheduler), sighting (a source saw the pod there up to
--   10 min before), or ledger (the newest span of the card, up to 2 h old), the first of them that names any. `gang_gpus` are the
--   workload's GPUs together, `card_gpus` those on the faulty card or node. `ended_at` is when it failed, was evicted,
--   requeued, or let a card go, from 5 min before to 10 min after the fault; `end_reason` is the event's kind, "finished",
--   "cancelled", "preempted" or "suspended" where somebody wanted it. `next_*`: its next start within 24 h. `checkpoint_at`:
--   its last checkpoint before the fault
-- Ignores: work that had left the card before the fault, unless it failed up to 5 min before.
-- Order: ts, node, gpu_uuid, kind, code, workload_id
with faults as (
    select ts, node, gpu_uuid, kind, code
    from fault
    where ts >= :from_at::timestamptz and ts < :to_at::timestamptz
),

-- A fault of a card meets what held the card, one of a node what held any card of the node.
held as (
    select faults.*, allocation.workload_id, allocation.pod, allocation.share, allocation.ended_at
    from faults
    inner join allocation
        on
            faults.gpu_uuid = allocation.gpu_uuid
            and faults.gpu_uuid <> ''
            and allocation.started_at <= faults.ts
            and coalesce(allocation.ended_at >= faults.ts - interval 5 minute, true)
    union all
    select faults.*, allocation.workload_id, allocation.pod, allocation.share, allocation.ended_at
    from faults
    inner join allocation
        on
            faults.node = allocation.node
            and faults.gpu_uuid = ''
            and allocation.gpu_uuid is not null
            and allocation.started_at <= faults.ts
            and coalesce(allocation.ended_at >= faults.ts - interval 5 minute, true)
),

scheduled as (
    select
        ts,
        node,
        gpu_uuid,
        kind,
        code,
        workload_id,
        min(pod) as pod,
        sum(share) as card_gpus,
        bool_or(coalesce(ended_at > ts, true)) as was_there
    from held
    group by all
),

unscheduled as (
    select *
    from faults
    anti join scheduled using (ts, node, gpu_uuid, kind, code)
),

sightings as (
    select unscheduled.*, holding.namespace, holding.pod, holding.share, holding.ts as seen_at
    from unscheduled
    inner join holding
        on
            unscheduled.gpu_uuid = holding.gpu_uuid
            and unscheduled.gpu_uuid <> ''
            and holding.ts >= unscheduled.ts - interval 10 minute
            and holding.ts <= unscheduled.ts + interval 1 minute
    union all
    select unscheduled.*, holding.namespace, holding.pod, holding.share, holding.ts
    from unscheduled
    inner join holding
        on
            unscheduled.node = holding.node
            and unscheduled.gpu_uuid = ''
            and holding.ts >= unscheduled.ts - interval 10 minute
            and holding.ts <= unscheduled.ts + interval 1 minute
),

sighted_pods as (
    select ts, node, gpu_uuid, kind, code, namespace, pod, arg_max(share, seen_at) as share
    from sightings
    group by all
),

sighted as (
    select
        sighted_pods.ts,
        sighted_pods.node,
        sighted_pods.gpu_uuid,
        sighted_pods.kind,
        sighted_pods.code,
        coalesce(known.workload_id, concat_ws('/', sighted_pods.namespace, sighted_pods.pod)) as workload_id,
        min(sighted_pods.pod) as pod,
        sum(sighted_pods.share) as card_gpus,
        true as was_there
    from sighted_pods
    left join (select namespace, pod, arg_max(workload_id, seen_at) as workload_id from pod group by namespace, pod) as known
        on sighted_pods.namespace = known.namespace and sighted_pods.pod = known.pod
    group by all
),

unsighted as (
    select *
    from unscheduled
    anti join sighted using (ts, node, gpu_uuid, kind, code)
),

recent as (
    select unsighted.*, state_span.gpu_uuid as card, state_span.allocation_id, state_span.workload_id, state_span.pod, state_span.share, state_span.until_at
    from unsighted
    inner join state_span
        on
            unsighted.gpu_uuid = state_span.gpu_uuid
            and unsighted.gpu_uuid <> ''
            and state_span.from_at <= unsighted.ts
            and state_span.until_at >= unsighted.ts - interval 2 hour
            and state_span.hour_at >= :from_at::timestamptz - interval 3 hour
            and state_span.hour_at < :to_at::timestamptz
    union all
    select unsighted.*, state_span.gpu_uuid as card, state_span.allocation_id, state_span.workload_id, state_span.pod, state_span.share, state_span.until_at
    from unsighted
    inner join state_span
        on
            unsighted.node = state_span.node
            and unsighted.gpu_uuid = ''
            and state_span.from_at <= unsighted.ts
            and state_span.until_at >= unsighted.ts - interval 2 hour
            and state_span.hour_at >= :from_at::timestamptz - interval 3 hour
            and state_span.hour_at < :to_at::timestamptz
),

spans as (
    select *, max(until_at) over (partition by ts, node, gpu_uuid, kind, code, card) as newest_at
    from recent
),

ledgered as (
    select ts, node, gpu_uuid, kind, code, workload_id, min(pod) as pod, sum(share) as card_gpus, true as was_there
    from spans
    where until_at = newest_at and allocation_id <> ''
    group by all
),

working as (
    select *, 'allocation' as told_by from scheduled
    union all by name
    select *, 'sighting' as told_by from sighted
    union all by name
    select *, 'ledger' as told_by from ledgered
),

gangs as (
    select
        working.ts,
        working.node,
        working.gpu_uuid,
        working.kind,
        working.code,
        working.workload_id,
        sum(allocation.share) as gang_gpus,
        max(coalesce(allocation.ready_at, allocation.started_at)) as ready_at,
        min(allocation.ended_at) filter (
            where allocation.ended_at >= working.ts - interval 5 minute and allocation.ended_at <= working.ts + interval 10 minute
        ) as let_go_at,
        sum(allocation.share) filter (
            where allocation.ended_at >= working.ts - interval 5 minute and allocation.ended_at <= working.ts + interval 10 minute
        ) as ended_gpus
    from working
    inner join allocation
        on
            working.workload_id = allocation.workload_id
            and allocation.gpu_uuid is not null
            and allocation.started_at <= working.ts
            and coalesce(allocation.ended_at >= working.ts - interval 5 minute, true)
    group by all
),

seen_gangs as (
    select
        working.ts,
        working.workload_id,
        count(distinct holding.gpu_uuid)::double as gang_gpus
    from working
    inner join pod on working.workload_id = pod.workload_id
    inner join holding
        on
            pod.namespace = holding.namespace
            and pod.pod = holding.pod
            and holding.ts >= working.ts - interval 10 minute
            and holding.ts <= working.ts + interval 1 minute
    where working.told_by = 'sighting'
    group by all
),

ends as (
    select
        working.ts,
        working.node,
        working.gpu_uuid,
        working.kind,
        working.code,
        working.workload_id,
        arg_min(event.kind, event.ts) filter (where event.kind in ('finished', 'cancelled', 'preempted', 'suspended')) as wanted,
        arg_min(event.kind, event.ts) filter (where event.kind in ('failed', 'evicted', 'requeued')) as failed,
        min(event.ts) filter (where event.kind in ('failed', 'evicted', 'requeued')) as failed_at,
        min(event.ts) as first_at
    from working
    inner join workload_event as event
        on
            working.workload_id = event.workload_id
            and event.ts >= working.ts - interval 5 minute
            and event.ts <= working.ts + interval 10 minute
            and event.kind in ('finished', 'cancelled', 'preempted', 'suspended', 'failed', 'evicted', 'requeued')
    group by all
),

ended as (
    select
        working.*,
        coalesce(gangs.gang_gpus, seen_gangs.gang_gpus, working.card_gpus) as gang_gpus,
        gangs.ready_at,
        coalesce(ends.failed_at, ends.first_at, gangs.let_go_at) as ended_at,
        case
            when coalesce(ends.failed_at, gangs.let_go_at) is not null then coalesce(gangs.ended_gpus, gangs.gang_gpus)
            else gangs.ended_gpus
        end as ended_gpus,
        case
            when ends.wanted = 'preempted' then 'preempted'
            when ends.failed is not null then ends.failed
            when ends.wanted is not null then ends.wanted
            when gangs.let_go_at is not null and workload.status in ('finished', 'cancelled', 'preempted') then workload.status
            when gangs.let_go_at is not null then 'let_go'
        end as end_reason,
        coalesce(workload.tenant, '') as tenant,
        coalesce(workload."user", '') as "user",
        coalesce(workload.queue, '') as queue,
        coalesce(workload.kind, 'unknown') as work_kind
    from working
    left join gangs using (ts, node, gpu_uuid, kind, code, workload_id)
    left join seen_gangs using (ts, workload_id)
    left join ends using (ts, node, gpu_uuid, kind, code, workload_id)
    left join workload using (workload_id)
),

starts as (
    select
        ended.ts,
        ended.node,
        ended.gpu_uuid,
        ended.kind,
        ended.code,
        ended.workload_id,
        min(allocation.started_at) as next_started_at
    from ended
    inner join allocation
        on
            ended.workload_id = allocation.workload_id
            and allocation.started_at >= ended.ended_at
            and allocation.started_at > ended.ts - interval 5 minute
            and allocation.started_at <= ended.ended_at + interval 24 hour
            and allocation.started_at < :to_at::timestamptz
    group by all
),

readied as (
    select
        starts.*,
        min(allocation.ready_at) filter (where allocation.started_at >= starts.next_started_at) as next_ready_at
    from starts
    inner join allocation using (workload_id)
    group by all
),

checkpoints as (
    select
        working.ts,
        working.workload_id,
        max(checkpoint.ts) filter (where checkpoint.ts <= working.ts) as checkpoint_at,
        count(*) > 0 as has_checkpoints
    from (select distinct ts, workload_id from working) as working
    inner join checkpoint using (workload_id)
    group by all
)

select
    ended.ts,
    ended.node,
    ended.gpu_uuid,
    ended.kind,
    ended.code,
    ended.workload_id,
    ended.pod,
    ended.told_by,
    ended.gang_gpus,
    ended.card_gpus,
    ended.tenant,
    ended."user",
    ended.queue,
    ended.work_kind,
    ended.ready_at,
    ended.ended_at,
    ended.ended_gpus,
    ended.end_reason,
    readied.next_started_at,
    readied.next_ready_at,
    checkpoints.checkpoint_at,
    coalesce(checkpoints.has_checkpoints, false) as has_checkpoints
from ended
left join readied using (ts, node, gpu_uuid, kind, code, workload_id)
left join checkpoints using (ts, workload_id)
where ended.was_there or ended.end_reason in ('failed', 'evicted', 'requeued', 'let_go')
order by ended.ts, ended.node, ended.gpu_uuid, ended.kind, ended.code, ended.workload_id;
