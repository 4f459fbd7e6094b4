-- name: money_by(by, price_basis, currency, from_at, to_at)
-- What GPU-hours cost in one currency, by state and by one dimension: tenant, node, model, state, pool, stage, kind or workload.
-- Grain: one row per value of the dimension and state.
-- Columns: key varchar, state varchar, gpu_hours double, priced_gpu_hours double, unpriced_gpu_hours double, overlapping_gpu_hours double, other_currency_gpu_hours double, amount double
-- Reads: ledger_hour, state_span, price_in_force
-- Units: GPU-hours; amount in units of the currency, NULL where no hour has a price in it. The four kinds of hours add up to gpu_hours
-- Ignores: prices of the other basis. Hours whose price is in another currency are counted, not converted.
-- Order: key, state
with book as (
    select *
    from price_in_force
    where basis = :price_basis
),

-- A price that changes inside an hour (midnight in a zone of half hours) splits the hour's spans, not its sums.
split_hours as (
    select distinct date_trunc('hour', from_at) as hour_at
    from book
    where from_at <> date_trunc('hour', from_at)
),

pieces as (
    select
        hour_at as from_at,
        hour_at + interval 1 hour as until_at,
        tenant,
        node,
        model,
        state,
        pool,
        stage,
        kind,
        workload_id,
        gpu_hours
    from ledger_hour
    where
        hour_at > :from_at::timestamptz - interval 1 hour
        and hour_at < :to_at::timestamptz
        and hour_at not in (select split_hours.hour_at from split_hours)
    union all
    select from_at, until_at, tenant, node, model, state, pool, stage, kind, workload_id, gpu_hours
    from state_span
    where
        hour_at > :from_at::timestamptz - interval 1 hour
        and hour_at < :to_at::timestamptz
        and hour_at in (select split_hours.hour_at from split_hours)
),

hours as (
    select
        case :by
            when 'tenant' then tenant
            when 'node' then node
            when 'model' then model
            when 'state' then state
            when 'pool' then pool
            when 'stage' then stage
            when 'kind' then kind
            when 'workload' then workload_id
        end as key,
        state,
        case when model in (select book.model from book) then model else '' end as model,
        case when tenant in (select book.tenant from book) then tenant else '' end as tenant,
        from_at,
        until_at,
        sum(gpu_hours) as gpu_hours
    from pieces
    group by all
),

priced as (
    select
        hours.key,
        hours.state,
        hours.gpu_hours * coalesce(
            epoch(least(hours.until_at, book.until_at) - greatest(hours.from_at, book.from_at)) / epoch(hours.until_at - hours.from_at), 1
        ) as gpu_hours,
        book.price_per_gpu_hour,
        book.currency,
        coalesce(book.is_overlapping, false) as is_overlapping
    from hours
    left join book
        on
            book.model = hours.model
            and book.tenant = hours.tenant
            and book.from_at < hours.until_at
            and book.until_at > hours.from_at
)

select
    key,
    state,
    sum(gpu_hours) as gpu_hours,
    coalesce(sum(gpu_hours) filter (where currency = :currency), 0) as priced_gpu_hours,
    coalesce(sum(gpu_hours) filter (where currency is null and not is_overlapping), 0) as unpriced_gpu_hours,
    coalesce(sum(gpu_hours) filter (where is_overlapping), 0) as overlapping_gpu_hours,
    coalesce(sum(gpu_hours) filter (where currency <> :currency), 0) as other_currency_gpu_hours,
    sum(gpu_hours * price_per_gpu_hour) filter (where currency = :currency) as amount
from priced
group by key, state
order by key, state;
