-- name: hardware_fault_peers(from_at, to_at)
-- What the other cards of a gang stood still after a fault of one of them, for as long as the gang kept them: from the ledger.
-- Grain: one row per fault and workload that stood still.
-- Columns: ts timestamptz, node varchar, gpu_uuid varchar, kind varchar, code varchar, workload_id varchar, still_gpu_hours double,
--   still_until_at timestamptz
-- Reads: fault, state_span
-- Units: GPU-hours of states alloc_idle and alloc_stalled, from the fault to the first instant at which the work was active again,
--   24 h at most
-- Ignores: the faulty card itself, and standing still that began more than 30 min after the fault.
-- Order: ts, node, gpu_uuid, kind, code, workload_id
with faults as (
    select ts, node, gpu_uuid, kind, code
    from fault
    where ts >= :from_at::timestamptz and ts < :to_at::timestamptz
),

held as (
    select node, gpu_uuid, workload_id, from_at, until_at
    from state_span
    where
        allocation_id <> ''
        and hour_at >= :from_at::timestamptz - interval 2 hour
        and hour_at < :to_at::timestamptz
),

hit as (
    select faults.*, held.workload_id
    from faults
    inner join held
        on
            faults.gpu_uuid = held.gpu_uuid
            and faults.gpu_uuid <> ''
            and held.from_at <= faults.ts
            and held.until_at >= faults.ts
    union
    select faults.*, held.workload_id
    from faults
    inner join held
        on
            faults.node = held.node
            and faults.gpu_uuid = ''
            and held.from_at <= faults.ts
            and held.until_at >= faults.ts
),

later as (
    select hit.*, span.gpu_uuid as card, span.state, span.activity, span.share, span.from_at, span.until_at
    from hit
    inner join state_span as span
        on
            hit.workload_id = span.workload_id
            and case when hit.gpu_uuid = '' then span.node <> hit.node else span.gpu_uuid <> hit.gpu_uuid end
            and span.until_at > hit.ts
            and span.from_at < hit.ts + interval 24 hour
            and span.hour_at >= :from_at::timestamptz - interval 2 hour
            and span.hour_at < :to_at::timestamptz
),

still as (
    select ts, node, gpu_uuid, kind, code, workload_id, min(greatest(from_at, ts)) as still_from_at
    from later
    where state in ('alloc_idle', 'alloc_stalled') and from_at <= ts + interval 30 minute
    group by all
),

resumed as (
    select
        still.*,
        min(later.from_at) filter (where later.activity = 'active' and later.from_at > still.still_from_at) as resumed_at
    from still
    inner join later using (ts, node, gpu_uuid, kind, code, workload_id)
    group by all
)

select
    resumed.ts,
    resumed.node,
    resumed.gpu_uuid,
    resumed.kind,
    resumed.code,
    resumed.workload_id,
    sum(
        later.share * greatest(
            0,
            epoch_us(
                least(later.until_at, resumed.ts + interval 24 hour, coalesce(resumed.resumed_at, 'infinity'::timestamptz))
                - greatest(later.from_at, resumed.ts)
            ) / 3.6e9
        )
    ) as still_gpu_hours,
    max(least(later.until_at, coalesce(resumed.resumed_at, 'infinity'::timestamptz))) as still_until_at
from resumed
inner join later using (ts, node, gpu_uuid, kind, code, workload_id)
where later.state in ('alloc_idle', 'alloc_stalled')
group by all
order by resumed.ts, resumed.node, resumed.gpu_uuid, resumed.kind, resumed.code, resumed.workload_id;
