-- name: forget_findings(analyzer, from_at)!
-- Forget a rule's findings that reach into the hours that are analysed again, and those that were found anew.
-- Grain: none
-- Reads: finding, staged_finding
-- Writes: finding
-- Units: none
-- Ignores: findings that ended before: nothing that comes can change them.
delete from finding
where
    analyzer = :analyzer
    and (window_end >= :from_at::timestamptz or finding_id in (select staged_finding.finding_id from staged_finding));
