-- name: open_condition(scheduler)
-- The conditions that a scheduler states of its nodes and has not taken back.
-- Grain: one row per subject and condition.
-- Columns: subject_kind varchar, subject varchar, condition varchar, from_at timestamptz, until_at timestamptz,
--   reason varchar, source varchar
-- Reads: condition, node_state, scheduler_node
-- Units: none
-- Ignores: conditions that ended, and those that somebody else than a scheduler stated.
-- Order: subject, condition
select condition.*
from condition
semi join (
    select node from node_state where scheduler = :scheduler::varchar
    union
    select node from scheduler_node where scheduler = :scheduler::varchar
) as own on condition.subject = own.node
where condition.until_at is null and condition.source in ('scheduler', :scheduler::varchar)
qualify row_number() over (partition by condition.subject, condition.condition order by condition.from_at desc) = 1
order by condition.subject, condition.condition;
