-- name: finding_by_id(finding_id)
-- One stored finding.
-- Grain: one row, or none where no finding has this identity.
-- Columns: finding_id varchar, analyzer varchar, rule_id varchar, rule_version bigint, subject_kind varchar, subject_id varchar, tenant varchar, user varchar, window_start timestamptz, window_end timestamptz, gpu_hours_observed double, gpu_hours_wasted double, gpu_hours_recoverable double, confidence double, basis varchar, cause_code varchar, action_code varchar, evidence json, action_params json, guardrails json, expected_gain json, data_quality json, found_at timestamptz, category varchar, severity varchar, gpu_hours_lost double, is_open boolean, queue varchar, kind varchar, vendor varchar
-- Reads: finding
-- Units: GPU-hours; confidence 0 to 1
-- Ignores: findings of earlier runs that the last one did not find.
-- Order: none
select *
from finding
where finding_id = :finding_id;
