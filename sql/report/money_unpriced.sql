-- name: money_unpriced(price_basis, currency, from_at, to_at)
-- Hours of the ledger that have no price in a currency, and why: what the price book still has to say.
-- Grain: one row per model, tenant and reason.
-- Columns: model varchar, tenant varchar, reason varchar, gpu_hours double, first_at timestamptz, last_at timestamptz
-- Reads: ledger_hour, price_in_force
-- Units: GPU-hours; reason is no_price, overlapping_prices or other_currency
-- Ignores: hours of which a part only has no price are counted by that part of the hour.
-- Order: gpu_hours, largest first
with book as (
    select *
    from price_in_force
    where basis = :price_basis
),

hours as (
    select
        model,
        tenant,
        case when model in (select book.model from book) then model else '' end as book_model,
        case when tenant in (select book.tenant from book) then tenant else '' end as book_tenant,
        hour_at,
        sum(gpu_hours) as gpu_hours
    from ledger_hour
    where hour_at > :from_at::timestamptz - interval 1 hour and hour_at < :to_at::timestamptz
    group by all
),

priced as (
    select
        hours.model,
        hours.tenant,
        case
            when coalesce(book.is_overlapping, false) then 'overlapping_prices'
            when book.currency is null then 'no_price'
            when book.currency <> :currency then 'other_currency'
        end as reason,
        hours.gpu_hours * coalesce(
            epoch(least(hours.hour_at + interval 1 hour, book.until_at) - greatest(hours.hour_at, book.from_at)) / 3600, 1
        ) as gpu_hours,
        coalesce(greatest(hours.hour_at, book.from_at), hours.hour_at) as first_at,
        coalesce(least(hours.hour_at + interval 1 hour, book.until_at), hours.hour_at + interval 1 hour) as last_at
    from hours
    left join book
        on
            book.model = hours.book_model
            and book.tenant = hours.book_tenant
            and book.from_at < hours.hour_at + interval 1 hour
            and book.until_at > hours.hour_at
)

select
    model,
    tenant,
    reason,
    sum(gpu_hours) as gpu_hours,
    min(first_at) as first_at,
    max(last_at) as last_at
from priced
where reason is not null
group by model, tenant, reason
order by gpu_hours desc, model, tenant, reason;
