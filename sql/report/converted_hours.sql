-- name: converted_hours(by, conversion_basis, price_basis, reference, from_at, to_at)
-- Converted card-hours beside GPU-hours, by state and by one dimension: tenant, node, model, state, pool, stage, kind or workload.
-- Grain: one row per value of the dimension and state.
-- Columns: key varchar, state varchar, gpu_hours double, converted_gpu_hours double, unconverted_gpu_hours double
-- Reads: ledger_hour, state_span, conversion_in_force, price_in_force, gpu_model
-- Units: GPU-hours; converted_gpu_hours are card-hours of the reference model, NULL where no hour has a factor; hours without one are unconverted_gpu_hours
-- Ignores: factors of other bases. A model's factor is the one that the owner dated for this basis; where there is none, peak_bf16 divides dense BF16 peaks of the data sheets by the reference's, price divides prices for all tenants in one currency, and owner has none.
-- Order: key, state
with factors as (
    select *
    from conversion_in_force
    where basis = :conversion_basis
),

book as (
    select
        own.model,
        own.from_at,
        own.until_at,
        case when own.currency = standard.currency then own.price_per_gpu_hour / nullif(standard.price_per_gpu_hour, 0) end as factor
    from price_in_force as own
    inner join price_in_force as standard
        on
            own.basis = standard.basis
            and own.tenant = standard.tenant
            and own.from_at = standard.from_at
    where own.basis = :price_basis and own.tenant = '' and standard.model = :reference and :conversion_basis = 'price'
),

peaks as (
    select
        own.model,
        own.peak_bf16_flops / nullif(standard.peak_bf16_flops, 0) as factor
    from gpu_model as own
    inner join gpu_model as standard on standard.model = :reference
    where :conversion_basis = 'peak_bf16'
),

split_hours as (
    select date_trunc('hour', from_at) as hour_at from factors where from_at <> date_trunc('hour', from_at)
    union
    select date_trunc('hour', from_at) from book where from_at <> date_trunc('hour', from_at)
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
        model,
        from_at,
        until_at,
        sum(gpu_hours) as gpu_hours
    from pieces
    group by all
),

of_owner as (
    select
        hours.key,
        hours.state,
        hours.model,
        greatest(hours.from_at, factors.from_at) as from_at,
        least(hours.until_at, factors.until_at) as until_at,
        hours.gpu_hours / epoch(hours.until_at - hours.from_at) as gpus_over_hour,
        factors.factor,
        coalesce(factors.is_overlapping, false) as is_overlapping
    from hours
    left join factors
        on
            factors.model = hours.model
            and factors.from_at < hours.until_at
            and factors.until_at > hours.from_at
),

with_price as (
    select
        of_owner.key,
        of_owner.state,
        of_owner.gpus_over_hour * epoch(least(of_owner.until_at, book.until_at) - greatest(of_owner.from_at, book.from_at)) as gpu_hours,
        case when not of_owner.is_overlapping then coalesce(of_owner.factor, book.factor, peaks.factor) end as factor
    from of_owner
    left join book
        on
            book.model = case when of_owner.model in (select known.model from book as known) then of_owner.model else '' end
            and book.from_at < of_owner.until_at
            and book.until_at > of_owner.from_at
    left join peaks on peaks.model = of_owner.model
)

select
    key,
    state,
    sum(gpu_hours) as gpu_hours,
    sum(gpu_hours * factor) as converted_gpu_hours,
    coalesce(sum(gpu_hours) filter (where factor is null), 0) as unconverted_gpu_hours
from with_price
group by key, state
order by key, state;
