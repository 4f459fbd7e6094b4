-- name: fragmentation_index(weighting, at, history_days)
-- Free GPUs of each node at one instant, and how many of them the requested shapes are expected not to be able to use (FGD).
-- Grain: one row per node with a card in service at `at`
-- Columns: node varchar, pool varchar, model varchar, gpu_count bigint, excluded_gpu_count bigint, free_gpus double,
--   fragment_gpus double, class_count bigint, demand_fragment_gpus double, pods_fragment_gpus double,
--   all_fragment_gpus double, published_fragment_gpus double
-- Reads: state_span, asset, node, condition, allocation, workload
-- Units: GPUs; `fragment_gpus` and `class_count` are those of `weighting` (demand, pods, all or published); fragments are
--   NULL where no class counts and on a node whose cards are all set aside
-- Ignores: memory, which is not in the index; cards of nodes under a condition; unknown CPU counts as ample; other spellings
--   of a model's name; workloads submitted after `at` or more than `history_days` before it (NULL for no limit)
-- Order: by node
with nodes_known_now as (
    select
        node,
        model,
        cpu_milli
    from node
    where from_at <= :at::timestamptz and (until_at is null or until_at > :at::timestamptz)
    qualify row_number() over (partition by node order by from_at desc) = 1
),

cpu_taken as (
    select
        node,
        sum(cpu_milli) as cpu_milli
    from allocation
    where started_at <= :at::timestamptz and (ended_at is null or ended_at > :at::timestamptz)
    group by node
),

cards_in_service as (
    select
        node,
        model,
        pool,
        is_set_aside,
        round(1000 * free_gpus, 3) as free_milli
    from card_room(:at::timestamptz)
),

nodes_in_service as (
    select
        cards_in_service.node,
        min(cards_in_service.pool) as pool,
        coalesce(max(nodes_known_now.model), min(cards_in_service.model)) as model,
        count(*) as gpu_count,
        count(*) filter (where is_set_aside) as excluded_gpu_count,
        coalesce(sum(free_milli) filter (where not is_set_aside), 0) as free_milli,
        max(nodes_known_now.cpu_milli) - coalesce(max(cpu_taken.cpu_milli), 0) as cpu_free_milli
    from cards_in_service
    left join nodes_known_now on cards_in_service.node = nodes_known_now.node
    left join cpu_taken on cards_in_service.node = cpu_taken.node
    group by cards_in_service.node
),

requested_classes as (
    select
        cpu_milli,
        case when num_gpu > 0 then gpu_milli else 0 end as gpu_milli,
        case when gpu_milli > 0 then num_gpu else 0 end as num_gpu,
        model_set,
        sum(pod_count) as pods
    from workload
    where
        submitted_at <= :at::timestamptz
        and (
            :history_days::double is null
            or submitted_at > :at::timestamptz - to_microseconds((:history_days::double * 86400000000)::bigint)
        )
    group by all
),

classes_in_order_of_count as (
    select
        *,
        sum(pods) over (
            order by pods desc, cpu_milli, gpu_milli, num_gpu, model_set nulls first rows unbounded preceding
        ) - pods as pods_before,
        sum(pods) over () as pods_in_all
    from requested_classes
),

classes_with_weights as (
    select
        row_number() over (order by pods_before, cpu_milli, gpu_milli, num_gpu, model_set) as class_id,
        cpu_milli,
        gpu_milli,
        num_gpu,
        model_set,
        (pods * num_gpu * gpu_milli)::double as demand,
        case when num_gpu > 0 then pods else 0 end::double as gpu_pods,
        pods::double as all_pods,
        case when pods_before < 0.95 * pods_in_all then pods else 0 end::double as published_pods
    from classes_in_order_of_count
),

classes_that_count as (
    select
        class_id,
        cpu_milli,
        gpu_milli,
        num_gpu,
        model_set,
        demand / nullif(sum(demand) over (), 0) as demand,
        gpu_pods / nullif(sum(gpu_pods) over (), 0) as gpu_pods,
        all_pods / nullif(sum(all_pods) over (), 0) as all_pods,
        published_pods / nullif(sum(published_pods) over (), 0) as published_pods
    from classes_with_weights
),

number_of_classes as (
    select
        count(*) filter (
            where case :weighting::varchar
                when 'demand' then demand
                when 'pods' then gpu_pods
                when 'all' then all_pods
                when 'published' then published_pods
            end > 0
        ) as class_count
    from classes_that_count
),

cards_of_equal_room as (
    select
        node,
        free_milli,
        count(*) as card_count
    from cards_in_service
    where not is_set_aside
    group by all
),

nodes_seen_by_each_class as (
    select
        cards_of_equal_room.node,
        classes_that_count.class_id,
        sum(case when free_milli < classes_that_count.gpu_milli then free_milli * card_count else 0 end)
            as too_small_milli,
        coalesce(sum(card_count) filter (where free_milli >= classes_that_count.gpu_milli), 0) as fitting_gpu_count
    from cards_of_equal_room
    cross join classes_that_count
    group by cards_of_equal_room.node, classes_that_count.class_id
),

what_each_class_cannot_use as (
    select
        nodes_seen_by_each_class.node,
        demand,
        gpu_pods,
        all_pods,
        published_pods,
        case
            when
                classes_that_count.gpu_milli > 0
                and fitting_gpu_count >= num_gpu
                and coalesce(nodes_in_service.cpu_free_milli >= classes_that_count.cpu_milli, true)
                and (
                    model_set is null
                    or coalesce(list_contains(string_split(model_set, '|'), nodes_in_service.model), false)
                )
                then too_small_milli
            else nodes_in_service.free_milli
        end / 1000 as unusable_gpus
    from nodes_seen_by_each_class
    inner join classes_that_count on nodes_seen_by_each_class.class_id = classes_that_count.class_id
    inner join nodes_in_service on nodes_seen_by_each_class.node = nodes_in_service.node
),

fragments_of_each_node as (
    select
        node,
        sum(demand * unusable_gpus) as demand_fragment_gpus,
        sum(gpu_pods * unusable_gpus) as pods_fragment_gpus,
        sum(all_pods * unusable_gpus) as all_fragment_gpus,
        sum(published_pods * unusable_gpus) as published_fragment_gpus
    from what_each_class_cannot_use
    group by node
),

index_of_each_node as (
    select
        nodes_in_service.node,
        nodes_in_service.pool,
        nodes_in_service.model,
        nodes_in_service.gpu_count,
        nodes_in_service.excluded_gpu_count,
        nodes_in_service.free_milli / 1000 as free_gpus,
        case :weighting::varchar
            when 'demand' then demand_fragment_gpus
            when 'pods' then pods_fragment_gpus
            when 'all' then all_fragment_gpus
            when 'published' then published_fragment_gpus
        end as fragment_gpus,
        number_of_classes.class_count,
        demand_fragment_gpus,
        pods_fragment_gpus,
        all_fragment_gpus,
        published_fragment_gpus
    from nodes_in_service
    cross join number_of_classes
    left join fragments_of_each_node on nodes_in_service.node = fragments_of_each_node.node
)

select
    node,
    pool,
    model,
    gpu_count,
    excluded_gpu_count,
    free_gpus,
    fragment_gpus,
    class_count,
    demand_fragment_gpus,
    pods_fragment_gpus,
    all_fragment_gpus,
    published_fragment_gpus
from index_of_each_node
order by node
