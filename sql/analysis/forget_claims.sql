-- name: forget_claims(analyzer, from_at)!
-- Forget what a rule claimed of the hours that are analysed again.
-- Grain: none
-- Reads: claim
-- Writes: claim
-- Units: none
-- Ignores: hours before `from_at`, which were analysed for good.
delete from claim
where analyzer = :analyzer and hour_at >= :from_at::timestamptz;
