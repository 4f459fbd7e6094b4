-- name: money_book()
-- The price book, with what is wrong with it: prices of one model and tenant that overlap, or leave a hole.
-- Grain: one row per price.
-- Columns: model varchar, tenant varchar, basis varchar, price_per_gpu_hour double, currency varchar, from_at timestamptz, until_at timestamptz, problem varchar, problem_until_at timestamptz
-- Reads: price
-- Units: currency units for a GPU-hour; problem is empty, overlap (with the next price, until problem_until_at; those hours have no price) or gap (none from until_at to problem_until_at). A price without an end lasts until the next one begins.
-- Ignores: nothing; prices of different bases, models or tenants never overlap.
-- Order: basis, tenant, model, from_at
with followed as (
    select
        *,
        lead(from_at) over next_price as next_from_at,
        lead(until_at) over next_price as next_until_at,
        lead(price_per_gpu_hour) over next_price as next_price_per_gpu_hour,
        lead(currency) over next_price as next_currency
    from price
    window next_price as (partition by basis, model, tenant order by from_at)
)

select
    model,
    tenant,
    basis,
    price_per_gpu_hour,
    currency,
    from_at,
    coalesce(until_at, next_from_at) as until_at,
    case
        when next_from_at is null or until_at is null then ''
        when until_at < next_from_at then 'gap'
        when until_at > next_from_at and (price_per_gpu_hour, currency) <> (next_price_per_gpu_hour, next_currency) then 'overlap'
        else ''
    end as problem,
    case
        when problem = 'gap' then next_from_at
        when problem = 'overlap' then least(until_at, next_until_at)
    end as problem_until_at
from followed
order by basis, tenant, model, from_at;
