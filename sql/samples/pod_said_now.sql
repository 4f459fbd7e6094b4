-- name: pod_said_now()!
-- All that was ever said of the pods of a batch, the batch with it.
-- Grain: one row per pod and different record; the same record again only moves its seen_at, and other labels replace the ones before.
-- Reads: pod_said, staged
-- Writes: pod_said_now
-- Units: count of its resource
-- Ignores: pods of which the batch says nothing.
create or replace temp table pod_said_now as
with every as (
    select said.* from pod_said as said
    semi join staged using (uid)
    union all by name
    select * from staged
),

kept as (
    select
        * exclude (labels, seen_at),
        labels is not null as has_labels,
        arg_max(labels, (seen_at, labels)) as labels,
        max(seen_at) as seen_at
    from every
    group by all
)

select * exclude (has_labels) from kept;
