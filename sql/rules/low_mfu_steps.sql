-- name: low_mfu_steps(from_at, to_at)
-- Tokens that jobs told by the hour, or the model FLOPs that their trainers worked out, the model, and the GPU-hours held meanwhile.
-- Grain: one row per job, hour and model of card.
-- Columns: subject_kind varchar, subject_id varchar, workload_id varchar, hour_at timestamptz, tokens double, wall_hours double, step_count bigint, card_model varchar, gpu_hours double, active_parameters double, layers bigint, hidden_size bigint, sequence_tokens bigint, precision varchar, model_flops_per_gpu double
-- Reads: job_step, job_model, state_span
-- Units: tokens of the whole job, hours, GPU-hours; `model_flops_per_gpu`: floating point operations of one GPU in the steps
-- Ignores: jobs that declare no model, or tell neither tokens nor model FLOPs. Where several ranks tell the job's tokens, the one that tells most steps counts.
-- Order: workload_id, hour_at, card_model
with by_rank as (
    select
        workload_id,
        rank,
        time_bucket(interval 1 hour, ts - interval 1 microsecond) as hour_at,
        sum(tokens) as tokens,
        sum(model_flops_per_gpu_second * step_seconds) as model_flops_per_gpu,
        count(*) as step_count,
        min(ts - to_microseconds((coalesce(step_seconds, 0) * 1e6)::bigint)) as from_at,
        max(ts) as until_at
    from job_step
    semi join job_model using (workload_id)
    where ts > :from_at::timestamptz and ts <= :to_at::timestamptz and (tokens > 0 or model_flops_per_gpu_second * step_seconds > 0)
    group by all
),

told as (
    select
        workload_id,
        hour_at,
        arg_max(tokens, (step_count, -rank)) as tokens,
        arg_max(model_flops_per_gpu, (step_count, -rank)) as model_flops_per_gpu,
        max(step_count) as step_count,
        arg_max(from_at, (step_count, -rank)) as from_at,
        arg_max(until_at, (step_count, -rank)) as until_at
    from by_rank
    group by all
),

held as (
    select
        told.workload_id,
        told.hour_at,
        span.model as card_model,
        sum(span.share * epoch_us(least(span.until_at, told.until_at) - greatest(span.from_at, told.from_at)) / 3.6e9) as gpu_hours
    from told
    inner join state_span as span
        on
            told.workload_id = span.workload_id
            and span.from_at < told.until_at
            and span.until_at > told.from_at
            and span.hour_at >= :from_at::timestamptz - interval 1 hour
            and span.hour_at < :to_at::timestamptz
            and span.allocation_id <> ''
    group by all
)

select
    'job' as subject_kind,
    told.workload_id as subject_id,
    told.workload_id,
    told.hour_at,
    told.tokens,
    epoch_us(told.until_at - told.from_at) / 3.6e9 as wall_hours,
    told.step_count,
    held.card_model,
    held.gpu_hours,
    declared.active_parameters,
    declared.layers,
    declared.hidden_size,
    declared.sequence_tokens,
    declared.precision,
    told.model_flops_per_gpu
from told
inner join held on told.workload_id = held.workload_id and told.hour_at = held.hour_at
inner join job_model as declared on told.workload_id = declared.workload_id
order by told.workload_id, told.hour_at, held.card_model;
