-- name: hardware_fault(from_at, to_at)
-- Faults of the window and of the 30 days before it, with what was known of their cards and nodes at that time.
-- Grain: one row per fault.
-- Columns: ts timestamptz, last_at timestamptz, node varchar, gpu_uuid varchar, vendor varchar, kind varchar, code varchar,
--   event_count bigint, sources varchar[], detail varchar, is_begin_known boolean, model varchar, pool varchar,
--   is_planned boolean, is_standing boolean, ineffective_reboots bigint
-- Reads: fault, condition, asset
-- Units: `ineffective_reboots`: earlier times in 30 days that the fault came again after its node had been away (not_ready)
--   in between. `is_planned`: its node or card was drained or under repair already. `is_standing`: a condition that began with
--   it (10 min before to 1 h after) has not ended by the window's end
-- Ignores: nothing.
-- Order: ts, node, gpu_uuid, kind, code
with known as (
    select *
    from fault
    where ts >= :from_at::timestamptz - interval 30 day and ts < :to_at::timestamptz
),

followed as (
    select
        *,
        lead(ts) over (partition by node, gpu_uuid, kind, code order by ts) as again_at
    from known
),

rebooted as (
    select
        followed.*,
        exists(
            select 1
            from condition
            where
                condition.subject_kind = 'node'
                and condition.subject = followed.node
                and condition.condition = 'not_ready'
                and condition.from_at >= followed.ts
                and condition.from_at < followed.again_at
        )::bigint as is_ineffective
    from followed
),

cards as (
    select gpu_uuid, arg_max(model, from_at) as model, arg_max(pool, from_at) as pool
    from asset
    group by gpu_uuid
)

select
    rebooted.ts,
    rebooted.last_at,
    rebooted.node,
    rebooted.gpu_uuid,
    rebooted.vendor,
    rebooted.kind,
    rebooted.code,
    rebooted.event_count,
    rebooted.sources,
    rebooted.detail,
    rebooted.is_begin_known,
    coalesce(cards.model, '') as model,
    coalesce(cards.pool, '') as pool,
    exists (
        select 1
        from condition
        where
            condition.subject in (rebooted.node, rebooted.gpu_uuid)
            and condition.condition in ('drain', 'under_repair')
            and condition.from_at < rebooted.ts
            and coalesce(condition.until_at > rebooted.ts, true)
    )
    or exists (
        select 1
        from asset
        where
            asset.gpu_uuid = rebooted.gpu_uuid
            and asset.status = 'under_repair'
            and asset.from_at < rebooted.ts
            and coalesce(asset.until_at > rebooted.ts, true)
    ) as is_planned,
    exists(
        select 1
        from condition
        where
            condition.subject in (rebooted.node, rebooted.gpu_uuid)
            and condition.condition in ('not_ready', 'cordoned_fault', 'drain', 'gpu_lost', 'fatal_xid', 'under_repair')
            and condition.from_at >= rebooted.ts - interval 10 minute
            and condition.from_at <= rebooted.ts + interval 1 hour
            and coalesce(condition.until_at > :to_at::timestamptz, true)
    ) as is_standing,
    coalesce(
        sum(rebooted.is_ineffective) over (
            partition by rebooted.node, rebooted.gpu_uuid, rebooted.kind, rebooted.code
            order by rebooted.ts
            range between interval 30 day preceding and current row
            exclude current row
        ),
        0
    )::bigint as ineffective_reboots
from rebooted
left join cards using (gpu_uuid)
order by rebooted.ts, rebooted.node, rebooted.gpu_uuid, rebooted.kind, rebooted.code;
