-- name: claims_carried(analyzer, from_at)
-- What a rule claimed before an instant of those subjects that it still claimed something of in the two hours before.
-- Grain: one row per claim.
-- Columns: subject_kind varchar, subject_id varchar, workload_id varchar, hour_at timestamptz, from_at timestamptz, until_at timestamptz, tenant varchar, user varchar, queue varchar, kind varchar, gpu_uuid varchar, slice_id varchar, allocation_id varchar, node varchar, model varchar, state varchar, cause varchar, basis varchar, is_shared boolean, gpu_hours double, held_gpu_hours double, observed_minutes double, coverage_ratio double, gpu_util_ratio double, sm_active_ratio double, core_active_ratio double, tensor_active_ratio double, dram_active_ratio double, fb_used_ratio double, power_watts double
-- Reads: claim
-- Units: GPU-hours, minutes, ratios, watts
-- Ignores: subjects whose last claim lies further back: nothing that comes can join it.
-- Order: none
with open_subjects as (
    select distinct subject_kind, subject_id, workload_id
    from claim
    where
        analyzer = :analyzer
        and hour_at >= :from_at::timestamptz - interval 3 hour
        and hour_at < :from_at::timestamptz
        and until_at >= :from_at::timestamptz - interval 2 hour
)

select
    claim.subject_kind,
    claim.subject_id,
    claim.workload_id,
    claim.hour_at,
    claim.from_at,
    claim.until_at,
    claim.tenant,
    claim."user",
    claim.queue,
    claim.kind,
    claim.gpu_uuid,
    claim.slice_id,
    claim.allocation_id,
    claim.node,
    claim.model,
    claim.state,
    claim.cause,
    claim.basis,
    claim.is_shared,
    claim.gpu_hours,
    claim.held_gpu_hours,
    claim.observed_minutes,
    claim.coverage_ratio,
    claim.gpu_util_ratio,
    claim.sm_active_ratio,
    claim.core_active_ratio,
    claim.tensor_active_ratio,
    claim.dram_active_ratio,
    claim.fb_used_ratio,
    claim.power_watts
from claim
semi join open_subjects
    on
        claim.subject_kind = open_subjects.subject_kind
        and claim.subject_id = open_subjects.subject_id
        and claim.workload_id = open_subjects.workload_id
where claim.analyzer = :analyzer and claim.hour_at < :from_at::timestamptz;
