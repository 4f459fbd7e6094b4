-- name: unowned_hours(from_at, to_at)
-- Held GPU-hours of which nothing says whose they are, by card: a hold without a tenant, or work on a card that nobody held.
-- Grain: one row per card, hold and hour.
-- Columns: node varchar, gpu_uuid varchar, hour_at timestamptz, from_at timestamptz, until_at timestamptz, pod varchar,
--   workload_id varchar, why varchar, gpu_hours double
-- Reads: state_span, quality
-- Units: GPU-hours; `why` is no_tenant (held) or held_by_nobody (cards worked, of which the ledger knows the node and hour only)
-- Ignores: hours whose tenant is not in the tenants' tree: their tenant has a name.
-- Order: node, gpu_uuid, hour_at, from_at, pod
with spans as (
    select
        node,
        gpu_uuid,
        hour_at,
        min(from_at) as from_at,
        max(until_at) as until_at,
        pod,
        workload_id,
        'no_tenant' as why,
        sum(gpu_hours) as gpu_hours
    from state_span
    where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz and allocation_id <> '' and tenant = ''
    group by node, gpu_uuid, hour_at, pod, workload_id
),

worked as (
    select
        subject as node,
        '' as gpu_uuid,
        hour_at,
        hour_at as from_at,
        hour_at + interval 1 hour as until_at,
        '' as pod,
        '' as workload_id,
        'held_by_nobody' as why,
        count / 60 as gpu_hours
    from quality
    where hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz and kind = 'active_unheld'
)

select * from spans
union all by name
select * from worked
order by node, gpu_uuid, hour_at, from_at, pod;
