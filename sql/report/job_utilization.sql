-- name: job_utilization(from_at, to_at)
-- 任务均值利用率: the mean utilization of each workload over its share-time, for the distribution and not only its mean.
-- Grain: one row per workload that held a GPU.
-- Columns: workload_id varchar, tenant varchar, kind varchar, held_gpu_hours double, gpu_util_ratio double, sm_active_ratio double, coverage_ratio double, gpu_util_source varchar
-- Reads: ledger_hour
-- Units: GPU-hours; ratios are weighted by the share-time over which the signal was measured, NULL where it never was
-- Ignores: shares that nobody held. What containers themselves are said to use: the card's utilization counts (`gpu_util_source`), which is a workload's own only while the card is ("host (exclusive card)"); of a card that several hold at a time ("host (shared card)") it is the whole card's, and no workload's part can be told.
-- Order: held_gpu_hours, largest first
select
    workload_id,
    any_value(tenant) as tenant,
    any_value(kind) as kind,
    sum(gpu_hours) as held_gpu_hours,
    sum(gpu_util_gpu_hours) / nullif(sum(gpu_util_observed_gpu_hours), 0) as gpu_util_ratio,
    sum(sm_active_gpu_hours) / nullif(sum(sm_active_observed_gpu_hours), 0) as sm_active_ratio,
    sum(observed_gpu_hours) / nullif(sum(gpu_hours), 0) as coverage_ratio,
    case
        when coalesce(sum(gpu_util_observed_gpu_hours), 0) = 0 then null
        when bool_and(contains(basis, '+shared_card')) filter (where gpu_util_observed_gpu_hours > 0) then 'host (shared card)'
        when bool_or(contains(basis, '+shared_card')) then 'host (card shared at times)'
        else 'host (exclusive card)'
    end as gpu_util_source
from ledger_hour
where
    hour_at > :from_at::timestamptz - interval 1 hour
    and hour_at < :to_at::timestamptz
    and starts_with(state, 'alloc_')
group by workload_id
order by held_gpu_hours desc, workload_id;
