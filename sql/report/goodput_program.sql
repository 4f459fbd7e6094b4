-- name: goodput_program(from_at, to_at)
-- Training that tells its model and its steps: tokens and time between its first and last step of the window, and on what it ran.
-- Grain: one row per workload.
-- Columns: workload_id varchar, tokens double, hours double, gpus double, model varchar, active_parameters double, layers bigint,
--   hidden_size bigint, sequence_tokens bigint, precision varchar
-- Reads: job_step, job_model, allocation, asset
-- Units: tokens of the whole job after its first step; GPUs that it held at its last step; `model` as the driver prints it, empty
--   where its cards are of several
-- Ignores: work with fewer than two steps, without tokens, or that does not declare its parameters.
-- Order: workload_id
with steps as (
    select workload_id, step, max(tokens) as tokens, max(ts) as ts
    from job_step
    where ts >= :from_at::timestamptz and ts < :to_at::timestamptz
    group by workload_id, step
),

spans as (
    select
        workload_id,
        sum(tokens) - arg_min(coalesce(tokens, 0), ts) as tokens,
        epoch_us(max(ts) - min(ts)) / 3.6e9 as hours,
        max(ts) as last_at
    from steps
    group by workload_id
    having count(tokens) >= 2 and max(ts) > min(ts)
),

cards as (
    select gpu_uuid, arg_max(model, from_at) as model
    from asset
    group by gpu_uuid
),

held as (
    select
        spans.workload_id,
        sum(allocation.share) as gpus,
        case when count(distinct cards.model) = 1 then min(cards.model) else '' end as model
    from spans
    inner join allocation
        on
            spans.workload_id = allocation.workload_id
            and allocation.gpu_uuid is not null
            and allocation.started_at <= spans.last_at
            and coalesce(allocation.ended_at >= spans.last_at, true)
    left join cards on allocation.gpu_uuid = cards.gpu_uuid
    group by spans.workload_id
)

select
    spans.workload_id,
    spans.tokens,
    spans.hours,
    held.gpus,
    held.model,
    job_model.active_parameters,
    job_model.layers,
    job_model.hidden_size,
    job_model.sequence_tokens,
    job_model.precision
from spans
inner join held using (workload_id)
inner join job_model using (workload_id)
where job_model.active_parameters is not null
order by spans.workload_id;
