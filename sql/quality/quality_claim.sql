-- name: quality_claim(from_at, to_at)!
-- Write which cards were claimed by more than they can hold, as the ledger found it.
-- Grain: one row per hour and card.
-- Reads: claimed, quality
-- Writes: quality
-- Units: holders, the most at one time; seconds
-- Ignores: cards of which a reader has told the same in the hour, with the names of the claimants. `claimed` is the answer of the query double_claims.
insert into quality by name
with hours as (
    select unnest(generate_series(:from_at::timestamptz, :to_at::timestamptz - interval 1 microsecond, interval 1 hour)) as hour_at
),

pieces as (
    select
        hours.hour_at,
        claimed.gpu_uuid,
        claimed.claims,
        epoch(least(claimed.until_at, hours.hour_at + interval 1 hour) - greatest(claimed.from_at, hours.hour_at)) as seconds
    from hours
    inner join claimed on claimed.from_at < hours.hour_at + interval 1 hour and claimed.until_at > hours.hour_at
),

told as (
    select distinct hour_at, subject as gpu_uuid
    from quality
    where kind = 'double_claim' and hour_at >= :from_at::timestamptz and hour_at < :to_at::timestamptz
)

select
    hour_at,
    'ledger' as source,
    'gpu' as subject_kind,
    gpu_uuid as subject,
    'double_claim' as kind,
    '' as detail,
    max(claims) as count,
    sum(seconds) as value
from pieces
anti join told using (hour_at, gpu_uuid)
group by hour_at, gpu_uuid;
