-- name: forget_rule_progress(analyzer)!
-- Forget how far a rule had analysed.
-- Grain: none
-- Reads: rule_progress
-- Writes: rule_progress
-- Units: none
-- Ignores: other rules.
delete from rule_progress
where analyzer = :analyzer;
