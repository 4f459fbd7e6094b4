-- name: unit_cost(price_basis, currency, from_at, to_at)
-- What a step and 1,000 tokens cost, by the models of the cards that made them, where work tells its steps.
-- Grain: one row per model; work on several models at once has them joined by "+".
-- Columns: model varchar, workload_count bigint, step_count bigint, gpu_hours double, gpu_hours_per_step double, amount_per_step double, token_count double, token_gpu_hours double, gpu_hours_per_1000_tokens double, amount_per_1000_tokens double
-- Reads: job_step, ledger_hour, price_in_force
-- Units: GPU-hours held, in whatever state; amounts in units of the currency, NULL unless every hour of them has a price in it; token columns are NULL where no step told its tokens
-- Ignores: work that tells no steps; hours in which a job ended no step (for tokens: told none). A step counts once however many ranks told it, and again when it is done again in a later hour. A price that changes inside an hour counts by its part of the hour.
-- Order: model
with book as (
    select *
    from price_in_force
    where basis = :price_basis
),

steps as (
    select
        workload_id,
        date_trunc('hour', ts) as hour_at,
        step,
        max(tokens) as tokens
    from job_step
    where
        ts >= date_trunc('hour', :from_at::timestamptz)
        and ts < :to_at::timestamptz
    group by workload_id, date_trunc('hour', ts), step
),

told as (
    select
        workload_id,
        hour_at,
        count(*) as step_count,
        sum(tokens) as token_count
    from steps
    group by workload_id, hour_at
),

hours as (
    select
        ledger_hour.workload_id,
        ledger_hour.hour_at,
        ledger_hour.model,
        case when ledger_hour.model in (select book.model from book) then ledger_hour.model else '' end as book_model,
        case when ledger_hour.tenant in (select book.tenant from book) then ledger_hour.tenant else '' end as book_tenant,
        sum(ledger_hour.gpu_hours) as gpu_hours
    from ledger_hour
    semi join told on ledger_hour.workload_id = told.workload_id and ledger_hour.hour_at = told.hour_at
    where
        starts_with(ledger_hour.state, 'alloc_')
        and ledger_hour.hour_at > :from_at::timestamptz - interval 1 hour
        and ledger_hour.hour_at < :to_at::timestamptz
    group by all
),

priced as (
    select
        hours.workload_id,
        hours.hour_at,
        string_agg(distinct hours.model, '+' order by hours.model) as model,
        sum(hours.gpu_hours * coalesce(epoch(least(hours.hour_at + interval 1 hour, book.until_at) - greatest(hours.hour_at, book.from_at)) / 3600, 1)) as gpu_hours,
        case
            when bool_and(coalesce(book.currency = :currency, false))
                then sum(hours.gpu_hours * book.price_per_gpu_hour * epoch(least(hours.hour_at + interval 1 hour, book.until_at) - greatest(hours.hour_at, book.from_at)) / 3600)
        end as amount
    from hours
    left join book
        on
            book.model = hours.book_model
            and book.tenant = hours.book_tenant
            and book.from_at < hours.hour_at + interval 1 hour
            and book.until_at > hours.hour_at
    group by hours.workload_id, hours.hour_at
),

sums as (
    select
        priced.model,
        count(distinct told.workload_id) as workload_count,
        sum(told.step_count)::bigint as step_count,
        sum(priced.gpu_hours) as gpu_hours,
        case when bool_and(priced.amount is not null) then sum(priced.amount) end as amount,
        sum(told.token_count) as token_count,
        sum(priced.gpu_hours) filter (where told.token_count is not null) as token_gpu_hours,
        case
            when bool_and(priced.amount is not null) filter (where told.token_count is not null)
                then sum(priced.amount) filter (where told.token_count is not null)
        end as token_amount
    from told
    inner join priced using (workload_id, hour_at)
    group by priced.model
)

select
    model,
    workload_count,
    step_count,
    gpu_hours,
    gpu_hours / step_count as gpu_hours_per_step,
    amount / step_count as amount_per_step,
    token_count,
    token_gpu_hours,
    1000 * token_gpu_hours / nullif(token_count, 0) as gpu_hours_per_1000_tokens,
    1000 * token_amount / nullif(token_count, 0) as amount_per_1000_tokens
from sums
order by model;
