-- name: money_currencies(price_basis, from_at, to_at)
-- The currencies in which the price book speaks of a period.
-- Grain: one row per currency.
-- Columns: currency varchar, price_count bigint
-- Reads: price
-- Units: count of prices
-- Ignores: prices of the other basis, and those that begin after the period or end before it.
-- Order: currency
select
    currency,
    count(*) as price_count
from price
where
    basis = :price_basis
    and from_at < :to_at::timestamptz
    and coalesce(until_at > :from_at::timestamptz, true)
group by currency
order by currency;
