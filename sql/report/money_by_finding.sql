-- name: money_by_finding(price_basis, currency, from_at, to_at)
-- What the GPU-hours that findings claim cost in one currency, hour by hour at the price of their model and tenant.
-- Grain: one row per finding that claims hours of the ledger.
-- Columns: finding_id varchar, analyzer varchar, category varchar, tenant varchar, gpu_hours double, priced_gpu_hours double, unpriced_gpu_hours double, overlapping_gpu_hours double, other_currency_gpu_hours double, amount double
-- Reads: finding, claim, price_in_force
-- Units: GPU-hours; amount in units of the currency, NULL where no claimed hour has a price in it
-- Ignores: findings whose window does not touch the period; of the others all claims count. Findings that claim nothing (quota, faults) have no row. The tenant of a claim is the one who held it then.
-- Order: amount, largest first; then gpu_hours
with book as (
    select *
    from price_in_force
    where basis = :price_basis
),

found as (
    select
        *,
        coalesce(action_params ->> 'workload_id', '') as workload_id
    from finding
    where window_start < :to_at::timestamptz and window_end > :from_at::timestamptz
),

-- A claim proves one finding: of its cause, where the rule tells causes apart, and the shortest around it.
claimed as (
    select
        found.finding_id,
        claim.from_at,
        claim.until_at,
        case when claim.model in (select book.model from book) then claim.model else '' end as model,
        case when claim.tenant in (select book.tenant from book) then claim.tenant else '' end as tenant,
        claim.gpu_hours
    from claim
    inner join found
        on
            found.analyzer = claim.analyzer
            and found.subject_kind = claim.subject_kind
            and found.subject_id = claim.subject_id
            and found.workload_id in ('', claim.workload_id)
            and found.window_start <= claim.from_at
            and found.window_end >= claim.until_at
    qualify
        row_number() over (
            partition by claim.analyzer, claim.subject_kind, claim.subject_id, claim.workload_id, claim.gpu_uuid, claim.slice_id, claim.allocation_id, claim.from_at
            order by found.cause_code = claim.cause desc, found.window_end - found.window_start, found.finding_id
        ) = 1
),

priced as (
    select
        claimed.finding_id,
        claimed.gpu_hours * coalesce(
            epoch(least(claimed.until_at, book.until_at) - greatest(claimed.from_at, book.from_at)) / epoch(claimed.until_at - claimed.from_at), 1
        ) as gpu_hours,
        book.price_per_gpu_hour,
        book.currency,
        coalesce(book.is_overlapping, false) as is_overlapping
    from claimed
    left join book
        on
            book.model = claimed.model
            and book.tenant = claimed.tenant
            and book.from_at < claimed.until_at
            and book.until_at > claimed.from_at
)

select
    finding_id,
    found.analyzer,
    found.category,
    found.tenant,
    sum(priced.gpu_hours) as gpu_hours,
    coalesce(sum(priced.gpu_hours) filter (where priced.currency = :currency), 0) as priced_gpu_hours,
    coalesce(sum(priced.gpu_hours) filter (where priced.currency is null and not priced.is_overlapping), 0) as unpriced_gpu_hours,
    coalesce(sum(priced.gpu_hours) filter (where priced.is_overlapping), 0) as overlapping_gpu_hours,
    coalesce(sum(priced.gpu_hours) filter (where priced.currency <> :currency), 0) as other_currency_gpu_hours,
    sum(priced.gpu_hours * priced.price_per_gpu_hour) filter (where priced.currency = :currency) as amount
from priced
inner join found using (finding_id)
group by finding_id, found.analyzer, found.category, found.tenant
order by amount desc nulls last, gpu_hours desc, finding_id;
