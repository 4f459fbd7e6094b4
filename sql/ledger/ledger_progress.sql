-- name: ledger_progress(from_at, to_at)!
-- Jobs that tell their steps: since when they do, and where they made none for too long.
-- Grain: one row per job and standstill; one without a standstill for a job that has none.
-- Reads: job_step, ledger_hold
-- Writes: ledger_progress
-- Units: minutes counted from 1970, whole minutes inside the standstill
-- Ignores: a step that a rank tells again. A standstill lasts at least 10 minutes and three times the job's median distance of steps, from one step to the next, or to the end of the job or the window. Steps told more than a day before the window are not looked at.
create or replace temp table ledger_progress as
with told as (
    select
        job_step.workload_id,
        job_step.ts,
        (job_step.step is distinct from lag(job_step.step) over (partition by job_step.workload_id, job_step.rank order by job_step.ts)) as is_progress
    from job_step
    where
        job_step.workload_id in (select workload_id from ledger_hold)
        and job_step.ts >= :from_at::timestamptz - interval 1 day
        and job_step.ts < :to_at::timestamptz
),

ended as (
    select distinct workload_id, ts
    from told
    where is_progress
),

distances as (
    select
        workload_id,
        ts,
        min(ts) over of_job as first_at,
        lead(ts) over (partition by workload_id order by ts) as next_at
    from ended
    window of_job as (partition by workload_id)
),

jobs as (
    select workload_id, any_value(job) as job, min(started_at) as started_at, max(coalesce(ended_at, 'infinity'::timestamptz)) as ended_at
    from ledger_hold
    group by workload_id
),

-- Of a job's second step nothing is known before it ends but how long the first one took.
usual as (
    select
        jobs.workload_id,
        any_value(jobs.job) as job,
        any_value(least(jobs.ended_at, :to_at::timestamptz)) as until_at,
        any_value(distances.first_at) as first_at,
        greatest(600, 3 * coalesce(median(epoch(distances.next_at - distances.ts)), epoch(any_value(distances.first_at - jobs.started_at)))) as longest_seconds
    from distances
    inner join jobs using (workload_id)
    group by jobs.workload_id
),

standstills as (
    select
        distances.workload_id,
        (epoch_us(distances.ts) + 59999999) // 60000000 as from_minute,
        epoch_us(coalesce(distances.next_at, usual.until_at)) // 60000000 as until_minute
    from distances
    inner join usual using (workload_id)
    where epoch(coalesce(distances.next_at, usual.until_at) - distances.ts) >= usual.longest_seconds
)

select
    usual.job,
    ((epoch_us(usual.first_at) + 59999999) // 60000000)::integer as first_minute,
    standstills.from_minute::integer as from_minute,
    standstills.until_minute::integer as until_minute
from usual
left join standstills using (workload_id);
