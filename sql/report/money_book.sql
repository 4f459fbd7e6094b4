-- name: money_book()
-- The price book, with what is wrong with it: prices of one model and tenant that overlap, or leave a hole.
-- Grain: one row per price.
-- Columns: model varchar, tenant varchar, basis varchar, price_per_gpu_hour double, currency varchar, from_at timestamptz, until_at timestamptz, problem varchar, problem_until_at timestamptz
-- Reads: price
-- Units: currency units for a GPU-hour; problem is empty, overlap (with any later price that differs, the last time of which ends at problem_until_at; those hours have no price) or gap (for some time before problem_until_at, when the next one begins, there is none). A price without an end lasts until the next one begins.
-- Ignores: nothing; prices of different bases, models or tenants never overlap.
-- Order: basis, tenant, model, from_at
with dated as (
    select
        *,
        lead(from_at) over (partition by basis, model, tenant order by from_at) as next_from_at,
        coalesce(until_at, next_from_at, timestamptz '2200-01-01 00:00:00+00') as ends_at
    from price
),

overlapping as (
    -- A long price may outlast its neighbour and overlap with a price after that.
    select
        one.basis,
        one.model,
        one.tenant,
        one.from_at,
        max(least(one.ends_at, later.ends_at)) as problem_until_at
    from dated as one
    inner join dated as later
        on
            one.basis = later.basis
            and one.model = later.model
            and one.tenant = later.tenant
            and one.from_at < later.from_at
            and one.ends_at > later.from_at
            and (one.price_per_gpu_hour, one.currency) <> (later.price_per_gpu_hour, later.currency)
    group by one.basis, one.model, one.tenant, one.from_at
),

covered as (
    select
        *,
        max(ends_at) over (
            partition by basis, model, tenant
            order by from_at
            rows unbounded preceding
        ) as covered_until_at
    from dated
)

select
    covered.model,
    covered.tenant,
    covered.basis,
    covered.price_per_gpu_hour,
    covered.currency,
    covered.from_at,
    coalesce(covered.until_at, covered.next_from_at) as until_at,
    case
        when overlapping.problem_until_at is not null then 'overlap'
        when covered.next_from_at > covered.covered_until_at then 'gap'
        else ''
    end as problem,
    case
        when problem = 'gap' then covered.next_from_at
        when problem = 'overlap' then overlapping.problem_until_at
    end as problem_until_at
from covered
left join overlapping using (basis, model, tenant, from_at)
order by basis, tenant, model, from_at;
