-- name: quota_in_force(at)
-- The nominal quota and the guaranteed floor of every queue and flavor at one instant.
-- Grain: one row per queue and flavor
-- Columns: scheduler varchar, queue varchar, tenant varchar, flavor varchar, nominal_gpus double, guarantee_gpus double
-- Reads: quota, queue
-- Units: GPUs; a NULL nominal is no limit, or was not reported
-- Ignores: borrowing and lending limits
-- Order: by scheduler, queue, flavor
with quotas_known_now as (
    select *
    from quota
    where from_at <= :at::timestamptz and (until_at is null or until_at > :at::timestamptz)
    qualify row_number() over (partition by queue, flavor order by from_at desc) = 1
),

quotas_with_their_scheduler as (
    select
        coalesce(queue.scheduler, 'default') as scheduler,
        quotas_known_now.queue,
        quotas_known_now.tenant,
        quotas_known_now.flavor,
        quotas_known_now.nominal_gpus,
        quotas_known_now.guarantee_gpus
    from quotas_known_now
    left join queue on quotas_known_now.queue = queue.queue
)

select
    scheduler,
    queue,
    tenant,
    flavor,
    nominal_gpus,
    guarantee_gpus
from quotas_with_their_scheduler
order by scheduler, queue, flavor
