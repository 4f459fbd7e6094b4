-- name: serving_cost(price_basis, currency, from_at, to_at)
-- What 1,000 requests and 1,000 generated tokens of services cost, by the models of the cards that gave them.
-- Grain: one row per model; a service on several models at once has them joined by "+".
-- Columns: model varchar, service_count bigint, gpu_hours double, request_count double, prompt_token_count double, generation_token_count double, gpu_hours_per_1000_requests double, amount_per_1000_requests double, gpu_hours_per_1000_tokens double, amount_per_1000_tokens double
-- Reads: engine_reading, engine_step, engine_service, ledger_hour, price_in_force
-- Units: GPU-hours held, in whatever state (standby and idle replicas are part of what a token costs); amounts in units of the currency, NULL unless every hour of them has a price in it; NULL where nothing was asked for
-- Ignores: hours in which no engine of a service told a counter, and what counters rose by across more than three intervals without a reading. Prefill and decode both count a request: the greater counts. A price that changes inside an hour counts by its part of the hour.
-- Order: model
with book as (
    select *
    from price_in_force
    where basis = :price_basis
),

by_role as (
    select
        owned.service,
        date_trunc('hour', step.ts) as hour_at,
        step.role,
        sum(coalesce(step.finished_requests, step.request_count, step.first_token_count)) as request_count,
        sum(step.prompt_tokens) as prompt_token_count,
        sum(step.generation_tokens) as generation_token_count
    from engine_step(date_trunc('hour', :from_at::timestamptz), :to_at::timestamptz) as step
    inner join engine_service(date_trunc('hour', :from_at::timestamptz), :to_at::timestamptz) as owned using (cluster, namespace, pod, workload_id, target)
    group by all
),

told as (
    select
        service,
        hour_at,
        max(request_count) as request_count,
        max(prompt_token_count) as prompt_token_count,
        max(generation_token_count) as generation_token_count
    from by_role
    where coalesce(request_count, prompt_token_count, generation_token_count) is not null
    group by service, hour_at
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
    semi join told on ledger_hour.workload_id = told.service and ledger_hour.hour_at = told.hour_at
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
        count(distinct told.service) as service_count,
        sum(priced.gpu_hours) as gpu_hours,
        sum(told.request_count) as request_count,
        sum(told.prompt_token_count) as prompt_token_count,
        sum(told.generation_token_count) as generation_token_count,
        sum(priced.gpu_hours) filter (where told.request_count is not null) as request_gpu_hours,
        sum(priced.gpu_hours) filter (where told.generation_token_count is not null) as token_gpu_hours,
        case
            when bool_and(priced.amount is not null) filter (where told.request_count is not null)
                then sum(priced.amount) filter (where told.request_count is not null)
        end as request_amount,
        case
            when bool_and(priced.amount is not null) filter (where told.generation_token_count is not null)
                then sum(priced.amount) filter (where told.generation_token_count is not null)
        end as token_amount
    from told
    inner join priced on told.service = priced.workload_id and told.hour_at = priced.hour_at
    group by priced.model
)

select
    model,
    service_count,
    gpu_hours,
    request_count,
    prompt_token_count,
    generation_token_count,
    1000 * request_gpu_hours / nullif(request_count, 0) as gpu_hours_per_1000_requests,
    1000 * request_amount / nullif(request_count, 0) as amount_per_1000_requests,
    1000 * token_gpu_hours / nullif(generation_token_count, 0) as gpu_hours_per_1000_tokens,
    1000 * token_amount / nullif(generation_token_count, 0) as amount_per_1000_tokens
from sums
order by model;
