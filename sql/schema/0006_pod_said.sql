-- What was said of a pod: one row for each different record, `seen_at` when it was last said. `pod` follows from these rows,
-- whatever the order in which they came.
create table pod_said as from pod;
