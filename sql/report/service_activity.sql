-- name: service_activity(from_at, to_at, bucket_seconds)
-- What each service was asked for and gave: requests, tokens, waiting times and cache, by bucket of time.
-- Grain: one row per service, role of its engines, and bucket with a reading; prefill and decode are rows of their own.
-- Columns: workload_id varchar, role varchar, bucket_at timestamptz, requests_per_second double, running_requests double, waiting_requests double, prompt_tokens_per_second double, generation_tokens_per_second double, kv_cache_used_mean_ratio double, kv_cache_used_max_ratio double, first_token_seconds double, output_token_seconds double, queue_seconds double, preempted_requests double, replica_count bigint, engine_count bigint, read_seconds double, demand_gpus double, ready_replicas bigint
-- Reads: engine_reading, engine_step, engine_service, service_load
-- Units: requests and tokens a second of the time that was read; requests; seconds, means over what ended in the bucket; ratios 0 to 1; GPUs
-- Ignores: what counters rose by across more than three intervals without a reading. Engines are added up; an engine that was there for a part of the bucket counts by that part. Finished requests are counted, where those are not told requests that ended or gave a first token. Generated tokens follow counters; where no engine of a server tells them, its own figure while requests ran. A replica is a server that answered. `demand_gpus`, `ready_replicas`, and requests where no engine tells them, are those of service_load; a service that only it tells has no replica here.
-- Order: workload_id, role, bucket_at
with steps as (
    select
        owned.service,
        step.role,
        time_bucket(to_seconds(:bucket_seconds::bigint), step.ts, timestamptz '2000-01-01 00:00:00+00') as bucket_at,
        concat_ws('/', step.target, step.namespace, step.pod) as server,
        concat_ws('/', step.model_name, step.engine) as engine,
        step.* exclude (role, target, namespace, pod, model_name, engine, cluster, workload_id),
        coalesce(step.finished_requests, step.request_count, step.first_token_count) as ended_requests,
        case
            when step.running_requests > 0 then step.generation_tokens_per_second
            when step.running_requests = 0 then 0
        end as told_tokens_per_second
    from engine_step(:from_at::timestamptz, :to_at::timestamptz) as step
    inner join engine_service(:from_at::timestamptz, :to_at::timestamptz) as owned using (cluster, namespace, pod, workload_id, target)
),

engines as (
    select
        service,
        role,
        bucket_at,
        server,
        engine,
        sum(known_seconds) as read_seconds,
        sum(elapsed_seconds) as counted_seconds,
        sum(running_requests * known_seconds) as running_requests,
        sum(waiting_requests * known_seconds) as waiting_requests,
        avg(kv_cache_used_ratio) as kv_cache_used_ratio,
        max(kv_cache_used_ratio) as kv_cache_used_max_ratio,
        sum(ended_requests) as ended_requests,
        sum(prompt_tokens) as prompt_tokens,
        sum(generation_tokens) as generation_tokens,
        sum(told_tokens_per_second * known_seconds) as told_tokens,
        sum(first_token_seconds) as first_token_seconds,
        sum(first_token_count) as first_token_count,
        sum(output_token_seconds) as output_token_seconds,
        sum(output_token_count) as output_token_count,
        sum(queue_seconds) as queue_seconds,
        sum(queue_count) as queue_count,
        sum(preempted_requests) as preempted_requests
    from steps
    group by all
),

-- The time that a service was read for is that of the engine that was read for longest.
servers as (
    select
        *,
        max(read_seconds) over of_service as service_seconds,
        max(counted_seconds) over of_service as service_counted_seconds,
        count(generation_tokens) over (partition by service, role, bucket_at, server) = 0 as is_told_apart
    from engines
    window of_service as (partition by service, role, bucket_at)
),

services as (
    select
        service,
        role,
        bucket_at,
        sum(ended_requests) / any_value(service_counted_seconds) as requests_per_second,
        sum(running_requests) / any_value(service_seconds) as running_requests,
        sum(waiting_requests) / any_value(service_seconds) as waiting_requests,
        sum(prompt_tokens) / any_value(service_counted_seconds) as prompt_tokens_per_second,
        case
            when count(generation_tokens) + count(told_tokens) filter (where is_told_apart) > 0
                then
                    coalesce(sum(generation_tokens) / any_value(service_counted_seconds), 0)
                    + coalesce(sum(told_tokens) filter (where is_told_apart) / any_value(service_seconds), 0)
        end as generation_tokens_per_second,
        avg(kv_cache_used_ratio) as kv_cache_used_mean_ratio,
        max(kv_cache_used_max_ratio) as kv_cache_used_max_ratio,
        sum(first_token_seconds) / nullif(sum(first_token_count), 0) as first_token_seconds,
        sum(output_token_seconds) / nullif(sum(output_token_count), 0) as output_token_seconds,
        sum(queue_seconds) / nullif(sum(queue_count), 0) as queue_seconds,
        sum(preempted_requests) as preempted_requests,
        count(distinct server) as replica_count,
        count(*) as engine_count,
        any_value(service_seconds) as read_seconds
    from servers
    group by service, role, bucket_at
),

loads as (
    select
        workload_id as service,
        time_bucket(to_seconds(:bucket_seconds::bigint), ts, timestamptz '2000-01-01 00:00:00+00') as bucket_at,
        sum(requests_per_second * duration_seconds) / sum(duration_seconds) filter (where requests_per_second is not null) as requests_per_second,
        sum(demand_gpus * duration_seconds) / sum(duration_seconds) filter (where demand_gpus is not null) as demand_gpus,
        max(ready_replicas) as ready_replicas
    from service_load
    where ts >= :from_at::timestamptz and ts < :to_at::timestamptz
    group by all
)

select
    service as workload_id,
    coalesce(services.role, 'unified') as role,
    bucket_at,
    coalesce(services.requests_per_second, loads.requests_per_second) as requests_per_second,
    services.running_requests,
    services.waiting_requests,
    services.prompt_tokens_per_second,
    services.generation_tokens_per_second,
    services.kv_cache_used_mean_ratio,
    services.kv_cache_used_max_ratio,
    services.first_token_seconds,
    services.output_token_seconds,
    services.queue_seconds,
    services.preempted_requests,
    coalesce(services.replica_count, 0) as replica_count,
    coalesce(services.engine_count, 0) as engine_count,
    services.read_seconds,
    loads.demand_gpus,
    loads.ready_replicas
from services
full outer join loads using (service, bucket_at)
order by workload_id, role, bucket_at;
