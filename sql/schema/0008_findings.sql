-- What findings rest on: progress of work, faults, prices, what each share did by the hour, and the claims of the rules.

alter table reading add column core_active_ratio double;
alter table gpu_model add column vendor varchar default 'nvidia';

-- Steps that ranks of jobs ended. Grain: (workload_id, rank, ts).
create table job_step (
    ts timestamptz not null,
    workload_id varchar not null,
    rank bigint not null,
    step bigint not null,
    gpu_uuid varchar,
    tokens double,
    step_seconds double,
    compute_seconds double
);

-- What a job declares of its model. Grain: workload_id.
create table job_model (
    workload_id varchar not null,
    active_parameters double not null,
    layers bigint,
    hidden_size bigint,
    sequence_tokens bigint,
    precision varchar not null,
    parallelism bigint
);

-- What a job, or one pod of it, was doing. Grain: (workload_id, pod, from_at).
create table workload_phase (
    workload_id varchar not null,
    pod varchar not null,
    phase varchar not null,
    from_at timestamptz not null,
    until_at timestamptz
);

-- Checkpoints that were complete. Grain: (workload_id, ts).
create table checkpoint (
    ts timestamptz not null,
    workload_id varchar not null,
    step bigint,
    blocking_seconds double
);

-- Faults as they were told. Grain: (ts, node, gpu_uuid, kind, code).
create table fault_event (
    ts timestamptz not null,
    node varchar not null,
    gpu_uuid varchar not null,
    vendor varchar not null,
    kind varchar not null,
    code varchar not null,
    source varchar not null,
    detail varchar,
    count bigint not null
);

-- What a GPU-hour costs. Grain: (model, tenant, basis, from_at).
create table price (
    model varchar not null,
    tenant varchar not null,
    basis varchar not null,
    price_per_gpu_hour double not null,
    currency varchar not null,
    from_at timestamptz not null,
    until_at timestamptz
);

-- Converted card-hours a card-hour. Grain: (model, basis, from_at).
create table conversion (
    model varchar not null,
    basis varchar not null,
    factor double not null,
    from_at timestamptz not null,
    until_at timestamptz
);

-- What a held share did in an hour, counted by its minutes. Grain: (hour_at, gpu_uuid, slice_id, allocation_id).
-- Ratios, clocks and rates are means over the minutes that were active and had a value; power over all observed minutes.
-- `zero_minutes` are those of them in which the grading counter (SM, or the vendor's core) read below 5 %;
-- `phase_minutes` lay in a declared quiet phase. `fb_used_bytes` is the 99th percentile of the minutes.
create table activity_hour (
    hour_at timestamptz not null,
    gpu_uuid varchar not null,
    slice_id varchar not null,
    allocation_id varchar not null,
    workload_id varchar not null,
    node varchar not null,
    share double not null,
    held_minutes double not null,
    observed_minutes double not null,
    active_minutes double not null,
    idle_minutes double not null,
    zero_minutes double not null,
    phase_minutes double not null,
    throttled_minutes double not null,
    gpu_util_ratio double,
    sm_active_ratio double,
    core_active_ratio double,
    gr_engine_active_ratio double,
    tensor_active_ratio double,
    dram_active_ratio double,
    fb_used_bytes double,
    fb_total_bytes double,
    power_watts double,
    sm_clock_hertz double,
    pcie_bytes_per_second double,
    nvlink_bytes_per_second double,
    coverage_ratio double,
    is_shared boolean not null
);

-- GPU-hours of the ledger that a rule speaks of: pieces of ledger spans, so that no GPU-hour is claimed twice.
-- Grain: (analyzer, subject_kind, subject_id, workload_id, gpu_uuid, slice_id, allocation_id, from_at).
-- `gpu_hours` are claimed (only observed minutes), `held_gpu_hours` is share x length. Means run over the piece.
create table claim (
    analyzer varchar not null,
    hour_at timestamptz not null,
    from_at timestamptz not null,
    until_at timestamptz not null,
    subject_kind varchar not null,
    subject_id varchar not null,
    workload_id varchar not null,
    tenant varchar not null,
    "user" varchar not null,
    queue varchar not null,
    kind varchar not null,
    gpu_uuid varchar not null,
    slice_id varchar not null,
    allocation_id varchar not null,
    node varchar not null,
    model varchar not null,
    state varchar not null,
    cause varchar not null,
    basis varchar not null,
    is_shared boolean not null,
    gpu_hours double not null,
    held_gpu_hours double not null,
    observed_minutes double not null,
    coverage_ratio double,
    gpu_util_ratio double,
    sm_active_ratio double,
    core_active_ratio double,
    tensor_active_ratio double,
    dram_active_ratio double,
    fb_used_ratio double,
    power_watts double
);

-- How far each rule has analysed for good. Hours from `final_until_at` on are analysed again. Grain: analyzer.
create table rule_progress (
    analyzer varchar not null,
    rule_version bigint not null,
    choices varchar not null,
    from_at timestamptz not null,
    final_until_at timestamptz not null,
    analysed_until_at timestamptz not null,
    analysed_at timestamptz not null
);

alter table finding add column category varchar default 'waste';
alter table finding add column severity varchar default 'warning';
alter table finding add column gpu_hours_lost double default 0;
alter table finding add column is_open boolean default false;
alter table finding add column queue varchar default '';
alter table finding add column kind varchar default '';
alter table finding add column vendor varchar default '';
