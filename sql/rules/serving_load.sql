-- name: serving_load(from_at, to_at)
-- What the servers of each service, and of each of its replicas, were asked for, as they told it.
-- Grain: one row per subject (a pod, and a workload) and hour in which a server of it was read.
-- Columns: subject_kind varchar, subject_id varchar, workload_id varchar, hour_at timestamptz, read_seconds double, request_count double, counted_seconds double, running_requests double, kv_cache_used_max_ratio double
-- Reads: engine_reading, engine_step, engine_service
-- Units: seconds, requests, ratios 0 to 1; running requests are the mean of their sum over engines while they were read
-- Ignores: what counters rose by across more than three intervals without a reading. Finished requests are counted, where those are not told requests that ended or gave a first token. NULL is not told. Prefill and decode of one pod are added up.
-- Order: none
with steps as (
    select
        owned.service,
        step.*,
        concat_ws('/', step.target, step.namespace, step.pod, step.model_name, step.role, step.engine) as engine_key,
        date_trunc('hour', step.ts) as hour_at,
        coalesce(step.finished_requests, step.request_count, step.first_token_count) as ended_requests
    from engine_step(:from_at::timestamptz, :to_at::timestamptz) as step
    inner join engine_service(:from_at::timestamptz, :to_at::timestamptz) as owned using (cluster, namespace, pod, workload_id, target)
),

subjects as (
    select 'pod' as subject_kind, pod as subject_id, * exclude (pod, workload_id)
    from steps
    where pod <> ''
    union all by name
    select 'job' as subject_kind, service as subject_id, * exclude (pod, workload_id)
    from steps
),

engines as (
    select
        subject_kind,
        subject_id,
        service as workload_id,
        hour_at,
        engine_key,
        sum(known_seconds) as read_seconds,
        sum(elapsed_seconds) filter (where ended_requests is not null) as counted_seconds,
        sum(ended_requests) as request_count,
        sum(running_requests * known_seconds) as running_requests,
        max(kv_cache_used_ratio) as kv_cache_used_max_ratio
    from subjects
    group by all
)

select
    subject_kind,
    subject_id,
    workload_id,
    hour_at,
    max(read_seconds) as read_seconds,
    sum(request_count) as request_count,
    max(counted_seconds) as counted_seconds,
    sum(running_requests) / max(read_seconds) as running_requests,
    max(kv_cache_used_max_ratio) as kv_cache_used_max_ratio
from engines
group by all;
