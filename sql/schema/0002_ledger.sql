-- What is computed from the records, and the ingest journal.

-- A batch that was acknowledged; a resent one changes nothing. `earliest_at` is the first instant of which the ledger
-- learnt something new from it. Grain: batch.
create table batch (
    batch_id varchar primary key,
    record varchar not null,
    accepted_count bigint not null,
    rejected_count bigint not null,
    committed_at timestamptz not null,
    earliest_at timestamptz
);

-- A build of the ledger over whole hours; with the batches it tells what has not been built yet. Grain: build.
create table ledger_build (
    begun_at timestamptz not null,
    from_at timestamptz not null,
    to_at timestamptz not null
);

-- Facts about GPU models, filled from gpuledger/model/gpu_models.py at every start. Grain: model.
create table gpu_model (
    model varchar primary key,
    power_idle_watts double not null,
    power_tdp_watts double not null,
    peak_bf16_flops double,
    compute_slices bigint not null,
    memory_slices bigint not null
);

-- The ledger: a share of one GPU in one state from `from_at` to `until_at`. At every instant the shares of a card sum to 1.
-- `activity` is what telemetry said (idle, stalled, active, unknown; NULL where nobody held the share).
-- `gpu_hours` = share x length. `observed_minutes` counts minutes with a reading. Means run over those minutes.
-- `cause` names why (a stranded share's cause, a condition). `basis` names the signals that decided.
-- Grain: (gpu_uuid, slice_id, allocation_id, from_at).
create table state_span (
    hour_at timestamptz not null,
    from_at timestamptz not null,
    until_at timestamptz not null,
    gpu_uuid varchar not null,
    slice_id varchar not null,
    node varchar not null,
    pool varchar not null,
    model varchar not null,
    allocation_id varchar not null,
    workload_id varchar not null,
    pod varchar not null,
    tenant varchar not null,
    "user" varchar not null,
    queue varchar not null,
    stage varchar not null,
    kind varchar not null,
    state varchar not null,
    activity varchar,
    cause varchar not null,
    basis varchar not null,
    share double not null,
    gpu_hours double not null,
    observed_minutes double not null,
    gpu_util_ratio double,
    sm_active_ratio double,
    fb_used_ratio double,
    power_watts double,
    coverage_ratio double
);

-- state_span summed by hour: what every page, report and rate reads. Grain: all columns before gpu_hours.
-- The two *_gpu_hours columns are utilization x share-time, by basis; *_observed_gpu_hours is the share-time they run over.
create table ledger_hour (
    hour_at timestamptz not null,
    gpu_uuid varchar not null,
    node varchar not null,
    pool varchar not null,
    model varchar not null,
    tenant varchar not null,
    queue varchar not null,
    workload_id varchar not null,
    stage varchar not null,
    kind varchar not null,
    state varchar not null,
    cause varchar not null,
    basis varchar not null,
    gpu_hours double not null,
    observed_gpu_hours double not null,
    gpu_util_gpu_hours double not null,
    gpu_util_observed_gpu_hours double not null,
    sm_active_gpu_hours double not null,
    sm_active_observed_gpu_hours double not null,
    energy_joules double,
    is_provisional boolean not null
);

-- Where assets, scheduler and telemetry disagree. Grain: (kind, subject, hour_at of the last check).
create table inventory_difference (
    kind varchar not null,
    subject varchar not null,
    node varchar not null,
    gpu_count double not null,
    from_at timestamptz not null,
    until_at timestamptz not null,
    detail varchar not null
);

-- Findings of the latest run of each analyzer over a window (algorithms.md, section 0). Grain: finding_id.
create table finding (
    finding_id varchar not null,
    analyzer varchar not null,
    rule_id varchar not null,
    rule_version bigint not null,
    subject_kind varchar not null,
    subject_id varchar not null,
    tenant varchar not null,
    "user" varchar not null,
    window_start timestamptz not null,
    window_end timestamptz not null,
    gpu_hours_observed double not null,
    gpu_hours_wasted double not null,
    gpu_hours_recoverable double not null,
    confidence double not null,
    basis varchar not null,
    cause_code varchar not null,
    action_code varchar not null,
    evidence json not null,
    action_params json not null,
    guardrails json not null,
    expected_gain json not null,
    data_quality json not null,
    found_at timestamptz not null
);
