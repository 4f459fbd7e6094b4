-- name: open_condition(scheduler)
-- The conditions that a scheduler states and has not taken back.
-- Grain: one row per subject and condition.
-- Columns: subject_kind varchar, subject varchar, condition varchar, from_at timestamptz, until_at timestamptz,
--   reason varchar, source varchar
-- Reads: condition
-- Units: none
-- Ignores: conditions that ended, and those that somebody else stated, another scheduler of the node too.
-- Order: subject, condition
select *
from condition
where until_at is null and source = :scheduler::varchar
qualify row_number() over (partition by subject, condition order by from_at desc) = 1
order by subject, condition;
