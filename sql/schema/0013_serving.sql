-- What engines of servers of models told of themselves. Grain: (target, namespace, pod, model_name, role, engine, ts).
create table engine_reading (
    ts timestamptz not null,
    source varchar not null,
    target varchar not null,
    cluster varchar not null,
    namespace varchar not null,
    pod varchar not null,
    workload_id varchar not null,
    model_name varchar not null,
    role varchar not null,
    engine varchar not null,
    interval_seconds double,
    running_requests double,
    waiting_requests double,
    kv_cache_used_ratio double,
    prefix_cache_hit_ratio double,
    generation_tokens_per_second double,
    prompt_tokens double,
    generation_tokens double,
    finished_requests double,
    preempted_requests double,
    first_token_seconds double,
    first_token_count double,
    output_token_seconds double,
    output_token_count double,
    queue_seconds double,
    queue_count double,
    request_seconds double,
    request_count double
);

-- By how much a counter rose: what is less than before began anew, and counts whole. NULL where either is not told.
create macro counter_increase(now_told, told_before) as
case when now_told >= told_before then now_told - told_before when told_before is not null then now_told end;

-- What each engine did between two readings of it, of the later readings in [from_at, to_at). Grain: that of engine_reading.
-- Its counters are here increases over `elapsed_seconds`, both NULL where no reading came in the three intervals before.
-- It served from `served_from_at` until `served_until_at` where its counters rose, and stands for its interval where
-- requests ran and no counter says anything; a request that runs while the told counters stand still is not served.
create macro engine_step(from_at, to_at) as table
with near as (
    select
        *,
        coalesce(interval_seconds, 60) as known_seconds,
        lag(ts) over of_engine as before_at,
        lag(prompt_tokens) over of_engine as prompt_tokens_before,
        lag(generation_tokens) over of_engine as generation_tokens_before,
        lag(finished_requests) over of_engine as finished_requests_before,
        lag(preempted_requests) over of_engine as preempted_requests_before,
        lag(first_token_seconds) over of_engine as first_token_seconds_before,
        lag(first_token_count) over of_engine as first_token_count_before,
        lag(output_token_seconds) over of_engine as output_token_seconds_before,
        lag(output_token_count) over of_engine as output_token_count_before,
        lag(queue_seconds) over of_engine as queue_seconds_before,
        lag(queue_count) over of_engine as queue_count_before,
        lag(request_seconds) over of_engine as request_seconds_before,
        lag(request_count) over of_engine as request_count_before
    from engine_reading
    where ts >= from_at - interval 1 hour and ts < to_at
    window of_engine as (partition by target, namespace, pod, model_name, role, engine order by ts)
),

steps as (
    select
        ts,
        source,
        target,
        cluster,
        namespace,
        pod,
        workload_id,
        model_name,
        role,
        engine,
        known_seconds,
        running_requests,
        waiting_requests,
        kv_cache_used_ratio,
        prefix_cache_hit_ratio,
        generation_tokens_per_second,
        case when epoch(ts - before_at) <= 3 * known_seconds then before_at end as before_at,
        case when epoch(ts - before_at) <= 3 * known_seconds then epoch_us(ts - before_at) / 1e6 end as elapsed_seconds,
        case when epoch(ts - before_at) <= 3 * known_seconds then counter_increase(prompt_tokens, prompt_tokens_before) end as prompt_tokens,
        case when epoch(ts - before_at) <= 3 * known_seconds then counter_increase(generation_tokens, generation_tokens_before) end as generation_tokens,
        case when epoch(ts - before_at) <= 3 * known_seconds then counter_increase(finished_requests, finished_requests_before) end as finished_requests,
        case when epoch(ts - before_at) <= 3 * known_seconds then counter_increase(preempted_requests, preempted_requests_before) end as preempted_requests,
        case when epoch(ts - before_at) <= 3 * known_seconds then counter_increase(first_token_seconds, first_token_seconds_before) end as first_token_seconds,
        case when epoch(ts - before_at) <= 3 * known_seconds then counter_increase(first_token_count, first_token_count_before) end as first_token_count,
        case when epoch(ts - before_at) <= 3 * known_seconds then counter_increase(output_token_seconds, output_token_seconds_before) end as output_token_seconds,
        case when epoch(ts - before_at) <= 3 * known_seconds then counter_increase(output_token_count, output_token_count_before) end as output_token_count,
        case when epoch(ts - before_at) <= 3 * known_seconds then counter_increase(queue_seconds, queue_seconds_before) end as queue_seconds,
        case when epoch(ts - before_at) <= 3 * known_seconds then counter_increase(queue_count, queue_count_before) end as queue_count,
        case when epoch(ts - before_at) <= 3 * known_seconds then counter_increase(request_seconds, request_seconds_before) end as request_seconds,
        case when epoch(ts - before_at) <= 3 * known_seconds then counter_increase(request_count, request_count_before) end as request_count
    from near
    where ts >= from_at
),

judged as (
    select
        *,
        -- greatest() passes over what is not told.
        greatest(prompt_tokens, generation_tokens, finished_requests, first_token_count, output_token_count, request_count) > 0 as is_counted
    from steps
)

select
    * exclude (is_counted),
    case when is_counted then before_at when is_counted is null and running_requests > 0 then ts end as served_from_at,
    case
        when is_counted is null and running_requests > 0 then ts + to_microseconds((known_seconds * 1e6)::bigint)
        when is_counted then ts
    end as served_until_at
from judged;

-- Which service an engine that was read in [from_at, to_at) belongs to: as declared, else as its pod says, else the one
-- workload that ever held a card by a pod of that name, else its pod or page itself. Grain: (cluster, namespace, pod, workload_id, target).
create macro engine_service(from_at, to_at) as table
with places as (
    select distinct cluster, namespace, pod, workload_id, target
    from engine_reading
    where ts >= from_at and ts < to_at
)

select
    places.*,
    coalesce(
        nullif(places.workload_id, ''), known.workload_id, alone.workload_id, nullif(concat_ws('/', nullif(places.namespace, ''), nullif(places.pod, '')), ''), places.target
    ) as service
from places
left join (
    select cluster, namespace, pod, arg_max(coalesce(workload_id, concat_ws('/', namespace, pod)), seen_at) as workload_id
    from pod
    where pod in (select places.pod from places)
    group by all
) as known using (cluster, namespace, pod)
left join (
    select pod, any_value(workload_id) as workload_id
    from allocation
    where pod in (select places.pod from places where places.pod <> '')
    group by pod
    having count(distinct workload_id) = 1
) as alone using (pod);
