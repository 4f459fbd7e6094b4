-- name: queue_usage_hours(from_at, to_at)
-- GPU-hours that each queue held, borrowed, lent, set aside and waited for in a window.
-- Grain: one row per queue with a recorded state.
-- Columns: scheduler varchar, queue varchar, tenant varchar, covered_hours double, running_gpu_hours double,
--   borrowed_gpu_hours double, lent_gpu_hours double, reserved_gpu_hours double, pending_gpu_hours double,
--   pending_known_hours double, max_running_gpus double, max_pending_gpus double
-- Reads: queue_state, queue
-- Units: GPU-hours; `covered_hours` is the time of which a state is known, `pending_known_hours` that in which it says what
--   waits; a NULL was never reported
-- Ignores: time without a state: it is not known, not zero.
-- Order: scheduler, queue
with states as (
    select
        *,
        date_diff(
            'microsecond',
            greatest(ts, :from_at::timestamptz),
            least(ts + to_microseconds((duration_seconds * 1000000)::bigint), :to_at::timestamptz)
        ) / 3600000000 as hours
    from queue_state
    where
        ts < :to_at::timestamptz
        and ts + to_microseconds((duration_seconds * 1000000)::bigint) > :from_at::timestamptz
)

select
    coalesce(queue.scheduler, 'default') as scheduler,
    states.queue,
    arg_max(states.tenant, states.ts) as tenant,
    sum(hours) as covered_hours,
    sum(running_gpus * hours) as running_gpu_hours,
    sum(borrowed_gpus * hours) as borrowed_gpu_hours,
    sum(lent_gpus * hours) as lent_gpu_hours,
    sum(reserved_gpus * hours) as reserved_gpu_hours,
    sum(pending_gpus * hours) as pending_gpu_hours,
    coalesce(sum(hours) filter (where pending_gpus is not null), 0) as pending_known_hours,
    max(running_gpus) as max_running_gpus,
    max(pending_gpus) as max_pending_gpus
from states
left join queue using (queue)
group by coalesce(queue.scheduler, 'default'), states.queue
order by scheduler, states.queue;
