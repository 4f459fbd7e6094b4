-- Prices and factors by time: what pages, API and reports multiply GPU-hours with. Views, so that a new price counts at once.

-- The price of each model and tenant of the book in each stretch between two changes of the book. The most specific price
-- stands: tenant and model, model, tenant, all. An empty model or tenant is for all that the book does not name. A price
-- without an end lasts until the next one of its model and tenant. Where two prices of one model and tenant overlap and
-- differ, there is none, and `is_overlapping` says so; where there is none, price and currency are NULL. The stretches of
-- a basis cover all of time. Grain: (basis, model, tenant, from_at).
create view price_in_force as
with dated as (
    select
        basis,
        model,
        tenant,
        price_per_gpu_hour,
        currency,
        from_at,
        coalesce(
            until_at,
            lead(from_at) over (partition by basis, model, tenant order by from_at),
            timestamptz '2200-01-01 00:00:00+00'
        ) as ends_at
    from price
),

changes as (
    select basis, from_at as changed_at from dated
    union
    select basis, ends_at from dated
    union
    select basis, unnest([timestamptz '1970-01-01 00:00:00+00', timestamptz '2200-01-01 00:00:00+00']) from dated
),

stretches as (
    select basis, changed_at as from_at, lead(changed_at) over (partition by basis order by changed_at) as until_at
    from changes
),

models as (
    select basis, model from dated
    union
    select basis, '' from dated
),

tenants as (
    select basis, tenant from dated
    union
    select basis, '' from dated
),

offers as (
    select
        stretches.basis,
        models.model,
        tenants.tenant,
        stretches.from_at,
        stretches.until_at,
        dated.price_per_gpu_hour,
        dated.currency,
        case when dated.currency is not null then {'price': dated.price_per_gpu_hour, 'currency': dated.currency} end as offer,
        2 * (dated.model <> '')::integer + (dated.tenant <> '')::integer as closeness
    from stretches
    inner join models using (basis)
    inner join tenants using (basis)
    left join dated
        on
            dated.basis = stretches.basis
            and dated.model in ('', models.model)
            and dated.tenant in ('', tenants.tenant)
            and dated.from_at <= stretches.from_at
            and dated.ends_at > stretches.from_at
    where stretches.until_at is not null
    qualify closeness is not distinct from max(closeness) over (partition by stretches.basis, models.model, tenants.tenant, stretches.from_at)
)

select
    basis,
    model,
    tenant,
    from_at,
    until_at,
    case when count(distinct offer) = 1 then any_value(price_per_gpu_hour) end as price_per_gpu_hour,
    case when count(distinct offer) = 1 then any_value(currency) end as currency,
    count(distinct offer) > 1 as is_overlapping
from offers
group by basis, model, tenant, from_at, until_at;

-- The factor of each model of the owner's table in each stretch between two changes; as `price_in_force`.
-- Grain: (basis, model, from_at).
create view conversion_in_force as
with dated as (
    select
        basis,
        model,
        factor,
        from_at,
        coalesce(
            until_at,
            lead(from_at) over (partition by basis, model order by from_at),
            timestamptz '2200-01-01 00:00:00+00'
        ) as ends_at
    from conversion
),

changes as (
    select basis, from_at as changed_at from dated
    union
    select basis, ends_at from dated
    union
    select basis, unnest([timestamptz '1970-01-01 00:00:00+00', timestamptz '2200-01-01 00:00:00+00']) from dated
),

stretches as (
    select basis, changed_at as from_at, lead(changed_at) over (partition by basis order by changed_at) as until_at
    from changes
),

models as (
    select distinct basis, model from dated
)

select
    models.basis,
    models.model,
    stretches.from_at,
    stretches.until_at,
    case when count(distinct dated.factor) = 1 then any_value(dated.factor) end as factor,
    count(distinct dated.factor) > 1 as is_overlapping
from models
inner join stretches using (basis)
left join dated
    on
        dated.basis = models.basis
        and dated.model = models.model
        and dated.from_at <= stretches.from_at
        and dated.ends_at > stretches.from_at
where stretches.until_at is not null
group by models.basis, models.model, stretches.from_at, stretches.until_at;
