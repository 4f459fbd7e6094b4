-- name: fragmentation_index(weighting, at, history_days)
-- Free GPUs of each node at one instant, and how many of them the requested shapes are expected not to be able to use (FGD).
-- Grain: one row per node with a card in service at `at`
-- Columns: node varchar, pool varchar, model varchar, gpu_count bigint, excluded_gpu_count bigint, free_gpus double,
--   fragment_gpus double, class_count bigint
-- Reads: asset, node, condition, allocation, workload
-- Units: GPUs; NULL fragments where nobody asked for anything yet
-- Ignores: memory, which is not in the index; cards of nodes under a condition; unknown CPU counts as ample;
--   workloads submitted after `at` or more than `history_days` before it (NULL for no limit)
-- Order: by node
with cards_known_now as (
    select
        gpu_uuid,
        node,
        model,
        pool,
        status
    from asset
    where from_at <= :at::timestamptz and (until_at is null or until_at > :at::timestamptz)
    qualify row_number() over (partition by gpu_uuid order by from_at desc) = 1
),

nodes_known_now as (
    select
        node,
        model,
        cpu_milli
    from node
    where from_at <= :at::timestamptz and (until_at is null or until_at > :at::timestamptz)
    qualify row_number() over (partition by node order by from_at desc) = 1
),

things_set_aside as (
    select distinct
        subject_kind,
        subject
    from condition
    where from_at <= :at::timestamptz and (until_at is null or until_at > :at::timestamptz)
),

allocations_in_force as (
    select
        node,
        gpu_uuid,
        share,
        cpu_milli
    from allocation
    where started_at <= :at::timestamptz and (ended_at is null or ended_at > :at::timestamptz)
),

shares_taken as (
    select
        gpu_uuid,
        sum(share) as share
    from allocations_in_force
    where gpu_uuid is not null
    group by gpu_uuid
),

cpu_taken as (
    select
        node,
        sum(cpu_milli) as cpu_milli
    from allocations_in_force
    group by node
),

cards_in_service as (
    select
        cards_known_now.node,
        cards_known_now.model,
        cards_known_now.pool,
        whole_node.subject is not null or single_card.subject is not null as is_set_aside,
        greatest(0, round(1000 * (1 - coalesce(shares_taken.share, 0)), 3)) as free_milli
    from cards_known_now
    left join things_set_aside as whole_node
        on whole_node.subject_kind = 'node' and whole_node.subject = cards_known_now.node
    left join things_set_aside as single_card
        on single_card.subject_kind = 'gpu' and single_card.subject = cards_known_now.gpu_uuid
    left join shares_taken on cards_known_now.gpu_uuid = shares_taken.gpu_uuid
    where cards_known_now.status = 'in_service'
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

classes_with_weight as (
    select
        row_number() over (order by pods_before, cpu_milli, gpu_milli, num_gpu, model_set) as class_id,
        cpu_milli,
        gpu_milli,
        num_gpu,
        model_set,
        case :weighting::varchar
            when 'demand' then pods * num_gpu * gpu_milli
            when 'pods' then case when num_gpu > 0 then pods else 0 end
            when 'all' then pods
            when 'published' then case when pods_before < 0.95 * pods_in_all then pods else 0 end
        end::double as weight
    from classes_in_order_of_count
),

classes_that_count as (
    select
        * exclude (weight),
        weight / sum(weight) over () as popularity,
        count(*) over () as class_count
    from classes_with_weight
    where weight > 0
),

nodes_seen_by_each_class as (
    select
        cards_in_service.node,
        classes_that_count.class_id,
        any_value(classes_that_count.popularity) as popularity,
        any_value(classes_that_count.gpu_milli) as gpu_milli,
        any_value(classes_that_count.num_gpu) as num_gpu,
        any_value(classes_that_count.cpu_milli) as cpu_milli,
        any_value(classes_that_count.model_set) as model_set,
        sum(case when free_milli < classes_that_count.gpu_milli then free_milli else 0 end) as too_small_milli,
        count(*) filter (where free_milli >= classes_that_count.gpu_milli) as fitting_gpu_count
    from cards_in_service
    cross join classes_that_count
    where not is_set_aside
    group by cards_in_service.node, classes_that_count.class_id
),

fragments_of_each_node as (
    select
        nodes_seen_by_each_class.node,
        sum(
            popularity * case
                when
                    gpu_milli > 0
                    and fitting_gpu_count >= num_gpu
                    and coalesce(nodes_in_service.cpu_free_milli >= nodes_seen_by_each_class.cpu_milli, true)
                    and (
                        model_set is null
                        or coalesce(list_contains(string_split(model_set, '|'), nodes_in_service.model), false)
                    )
                    then too_small_milli
                else nodes_in_service.free_milli
            end
        ) / 1000 as fragment_gpus
    from nodes_seen_by_each_class
    inner join nodes_in_service on nodes_seen_by_each_class.node = nodes_in_service.node
    group by nodes_seen_by_each_class.node
),

index_of_each_node as (
    select
        nodes_in_service.node,
        nodes_in_service.pool,
        nodes_in_service.model,
        nodes_in_service.gpu_count,
        nodes_in_service.excluded_gpu_count,
        nodes_in_service.free_milli / 1000 as free_gpus,
        case
            when nodes_in_service.gpu_count = nodes_in_service.excluded_gpu_count then 0
            else fragments_of_each_node.fragment_gpus
        end as fragment_gpus,
        coalesce((select max(classes_that_count.class_count) from classes_that_count), 0) as class_count
    from nodes_in_service
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
    class_count
from index_of_each_node
order by node
