-- name: ledger_rates(from_at, to_at)
-- The rates that owners quarrel about, each with both sides of its division and its basis.
-- Grain: one row per rate.
-- Columns: name varchar, name_zh varchar, formula varchar, basis varchar, numerator_gpu_hours double, denominator_gpu_hours double, value double
-- Reads: ledger_hour
-- Units: GPU-hours of physical share-time; value is a ratio, NULL where there is nothing to divide by; numerator and value NULL where cards were held and nothing was read that could say it
-- Ignores: the fragmentation rate by shape (query fragmentation_rate), the jobs' mean utilization (job_utilization), quota fill (quota_balance); effective training time, MFU and tidal rates, which have other inputs.
-- Order: as listed
with sums as (
    select
        coalesce(sum(gpu_hours), 0) as inventory,
        coalesce(sum(gpu_hours) filter (where state <> 'unavailable'), 0) as available,
        coalesce(sum(gpu_hours) filter (where starts_with(state, 'alloc_')), 0) as held,
        coalesce(sum(gpu_hours) filter (where starts_with(state, 'free_')), 0) as free,
        coalesce(sum(gpu_hours) filter (where state = 'free_stranded'), 0) as stranded,
        coalesce(sum(gpu_hours) filter (where state = 'alloc_productive'), 0) as productive,
        coalesce(sum(gpu_hours) filter (where state = 'alloc_ungraded'), 0) as ungraded,
        coalesce(sum(gpu_hours) filter (where state = 'alloc_idle'), 0) as idle,
        coalesce(sum(gpu_hours) filter (where state in ('free_stranded', 'alloc_idle', 'alloc_stalled')), 0) as waste,
        coalesce(sum(gpu_util_gpu_hours) filter (where starts_with(state, 'alloc_')), 0) as gpu_util,
        coalesce(sum(gpu_util_observed_gpu_hours) filter (where starts_with(state, 'alloc_')), 0) as gpu_util_held,
        coalesce(sum(sm_active_gpu_hours) filter (where starts_with(state, 'alloc_')), 0) as sm_active,
        coalesce(sum(sm_active_observed_gpu_hours) filter (where starts_with(state, 'alloc_')), 0) as sm_active_held,
        coalesce(sum(observed_gpu_hours) filter (where starts_with(state, 'alloc_')), 0) as observed,
        -- Held and never read with the signal: not known, which is not zero.
        case when held = 0 or gpu_util_held > 0 then gpu_util end as util,
        case when held = 0 or sm_active_held > 0 or productive > 0 then productive end as graded,
        case when held = 0 or observed > 0 or ungraded > 0 then ungraded end as not_graded,
        case when held = 0 or observed > 0 or idle > 0 then idle end as seen_idle
    from ledger_hour
    where hour_at > :from_at::timestamptz - interval 1 hour and hour_at < :to_at::timestamptz
),

rates as (
    select
        unnest([
            {'rank': 1, 'name': 'allocation_rate', 'name_zh': '分配率', 'formula': 'held ÷ (inventory − unavailable)', 'basis': 'allocation', 'top': held, 'bottom': available},
            {'rank': 2, 'name': 'allocation_rate_of_inventory', 'name_zh': '分配率（全量）', 'formula': 'held ÷ inventory', 'basis': 'allocation', 'top': held, 'bottom': inventory},
            {'rank': 3, 'name': 'gpu_util_of_held', 'name_zh': '利用率（已分配）', 'formula': 'Σ utilization × share-time ÷ held share-time with that signal', 'basis': 'gpu_util', 'top': gpu_util, 'bottom': gpu_util_held},
            {'rank': 4, 'name': 'sm_active_of_held', 'name_zh': 'SM 活跃率（已分配）', 'formula': 'Σ SM activity × share-time ÷ held share-time with that signal', 'basis': 'sm_active', 'top': sm_active, 'bottom': sm_active_held},
            {'rank': 5, 'name': 'gpu_util_of_available', 'name_zh': '利用率（全量，除不可用）', 'formula': 'Σ utilization × share-time of held cards ÷ (inventory − unavailable)', 'basis': 'gpu_util', 'top': util, 'bottom': available},
            {'rank': 6, 'name': 'gpu_util_of_inventory', 'name_zh': '利用率（全量）', 'formula': 'Σ utilization × share-time of held cards ÷ inventory', 'basis': 'gpu_util', 'top': util, 'bottom': inventory},
            {'rank': 7, 'name': 'effective_utilization', 'name_zh': '有效利用率', 'formula': 'productive ÷ inventory', 'basis': 'sm_active', 'top': graded, 'bottom': inventory},
            {'rank': 8, 'name': 'ungraded_share', 'name_zh': '未评级占比', 'formula': 'active without a grading signal ÷ inventory', 'basis': 'gpu_util', 'top': not_graded, 'bottom': inventory},
            {'rank': 9, 'name': 'vacancy', 'name_zh': '空置率', 'formula': 'free ÷ (inventory − unavailable)', 'basis': 'allocation', 'top': free, 'bottom': available},
            {'rank': 10, 'name': 'held_idle_rate', 'name_zh': '空闲占卡率', 'formula': 'held idle ÷ held', 'basis': 'sm_active, else gr_engine_active, else gpu_util', 'top': seen_idle, 'bottom': held},
            {'rank': 11, 'name': 'stranded_share_of_free', 'name_zh': '搁浅占空闲比', 'formula': 'stranded ÷ free', 'basis': 'allocation', 'top': stranded, 'bottom': free},
            {'rank': 12, 'name': 'waste_share', 'name_zh': '浪费占比', 'formula': '(stranded + idle + stalled) ÷ inventory', 'basis': 'allocation and activity', 'top': waste, 'bottom': inventory},
            {'rank': 13, 'name': 'coverage', 'name_zh': '数据覆盖率', 'formula': 'held share-time with a successful reading ÷ held', 'basis': 'all sources', 'top': observed, 'bottom': held}
        ]) as rate
    from sums
)

select
    rate.name as name,
    rate.name_zh as name_zh,
    rate.formula as formula,
    rate.basis as basis,
    rate.top as numerator_gpu_hours,
    rate.bottom as denominator_gpu_hours,
    rate.top / nullif(rate.bottom, 0) as value
from rates
order by rate.rank;
