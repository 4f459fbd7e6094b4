-- name: rule_progress_list()
-- How far each rule has analysed, for good and provisionally.
-- Grain: one row per analyzer.
-- Columns: analyzer varchar, rule_version bigint, choices varchar, from_at timestamptz, final_until_at timestamptz, analysed_until_at timestamptz, analysed_at timestamptz, provisional_hours double
-- Reads: rule_progress
-- Units: hours
-- Ignores: rules that look at a whole window each time: they keep no progress.
-- Order: by analyzer
select
    *,
    epoch(analysed_until_at - final_until_at) / 3600 as provisional_hours
from rule_progress
order by analyzer;
