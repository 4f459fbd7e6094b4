-- name: ledger_tree(level, from_at, to_at)
-- GPU-hours by a level of the tree of tenants (1: divisions, 2: what is below them, ...), each hour by the tree as it was then.
-- Grain: one row per node of the tree and state.
-- Columns: tenant varchar, depth bigint, state varchar, gpu_hours double
-- Reads: ledger_hour, tenant
-- Units: GPU-hours
-- Ignores: nothing: every level adds up to the whole ledger. A tenant above the level stands for itself. Held hours without a tenant, or of one that is not in the tree of that hour, are "(unowned)", hours that nobody held "(not held)", both at depth 0; where no tree is declared each tenant is a division. A tree changes with the hour that begins next. A circle is cut where it closes.
-- Order: depth, tenant, state
with recursive changes as (
    select from_at as changed_at from tenant
    union
    select until_at from tenant where until_at is not null
    union
    select '-infinity'::timestamptz
),

hours as (
    select tenant, state, workload_id <> '' as is_held, changed_at, sum(gpu_hours) as gpu_hours
    from ledger_hour
    asof inner join changes on ledger_hour.hour_at >= changes.changed_at
    where hour_at > :from_at::timestamptz - interval 1 hour and hour_at < :to_at::timestamptz
    group by all
),

members as (
    select changes.changed_at, known.tenant, nullif(known.parent, '') as parent
    from (select distinct changed_at from hours) as changes
    inner join tenant as known
        on known.from_at <= changes.changed_at and coalesce(known.until_at > changes.changed_at, true)
    qualify row_number() over (partition by changes.changed_at, known.tenant order by known.from_at desc) = 1
),

climbs as (
    select changed_at, tenant, parent, [tenant] as path
    from members
    union all
    select climbs.changed_at, climbs.tenant, members.parent, list_prepend(climbs.parent, climbs.path)
    from climbs
    left join members on climbs.changed_at = members.changed_at and climbs.parent = members.tenant
    where climbs.parent is not null and not list_contains(climbs.path, climbs.parent)
),

paths as (
    select changed_at, tenant, arg_max(path, len(path)) as path
    from climbs
    group by changed_at, tenant
),

placed as (
    select
        hours.state,
        hours.gpu_hours,
        case
            when not hours.is_held then []
            when paths.path is not null then paths.path
            when hours.tenant <> '' and not exists (select 1 from tenant) then [hours.tenant]
            else []
        end as path,
        case when hours.is_held then '(unowned)' else '(not held)' end as nobody
    from hours
    left join paths on hours.changed_at = paths.changed_at and hours.tenant = paths.tenant
)

select
    coalesce(path[least(greatest(:level::bigint, 1), len(path))], nobody) as tenant,
    least(greatest(:level::bigint, 1), len(path)) as depth,
    state,
    sum(gpu_hours) as gpu_hours
from placed
group by all
order by depth, tenant, state;
