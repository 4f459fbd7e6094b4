-- name: finding_claims(finding_id, cause)
-- What a finding claims of the ledger: each piece with the span that it is cut from, so that its GPU-hours can be added up.
-- Grain: one row per claim.
-- Columns: from_at timestamptz, until_at timestamptz, gpu_uuid varchar, slice_id varchar, allocation_id varchar, node varchar, model varchar, state varchar, cause varchar, basis varchar, gpu_hours double, held_gpu_hours double, observed_minutes double, coverage_ratio double, gpu_util_ratio double, sm_active_ratio double, core_active_ratio double, tensor_active_ratio double, dram_active_ratio double, fb_used_ratio double, power_watts double, span_from_at timestamptz, span_until_at timestamptz, span_state varchar, span_share double, span_gpu_hours double
-- Reads: claim, finding, state_span
-- Units: GPU-hours, minutes, ratios, watts
-- Ignores: claims of other causes, where a cause is given. A finding of a rule that claims nothing has no row; a piece whose span was built anew and is gone has none beside it.
-- Order: by start, card, slice and allocation
with found as (
    select
        analyzer,
        subject_kind,
        subject_id,
        window_start,
        window_end,
        coalesce(json_extract_string(action_params, '$.workload_id'), '') as workload_id
    from finding
    where finding_id = :finding_id
),

claimed as (
    select claim.*
    from found
    inner join claim
        on
            found.analyzer = claim.analyzer
            and found.subject_kind = claim.subject_kind
            and found.subject_id = claim.subject_id
            and (found.workload_id = '' or found.workload_id = claim.workload_id)
            and found.window_start <= claim.from_at
            and found.window_end >= claim.until_at
    where :cause = '' or claim.cause = :cause
)

select
    claimed.from_at,
    claimed.until_at,
    claimed.gpu_uuid,
    claimed.slice_id,
    claimed.allocation_id,
    claimed.node,
    claimed.model,
    claimed.state,
    claimed.cause,
    claimed.basis,
    claimed.gpu_hours,
    claimed.held_gpu_hours,
    claimed.observed_minutes,
    claimed.coverage_ratio,
    claimed.gpu_util_ratio,
    claimed.sm_active_ratio,
    claimed.core_active_ratio,
    claimed.tensor_active_ratio,
    claimed.dram_active_ratio,
    claimed.fb_used_ratio,
    claimed.power_watts,
    span.from_at as span_from_at,
    span.until_at as span_until_at,
    span.state as span_state,
    span.share as span_share,
    span.gpu_hours as span_gpu_hours
from claimed
left join state_span as span
    on
        claimed.gpu_uuid = span.gpu_uuid
        and claimed.slice_id = span.slice_id
        and claimed.allocation_id = span.allocation_id
        and claimed.hour_at = span.hour_at
        and span.from_at <= claimed.from_at
        and span.until_at >= claimed.until_at
order by claimed.from_at, claimed.gpu_uuid, claimed.slice_id, claimed.allocation_id, claimed.until_at;
