-- Records as they arrive: one table for each entry of gpuledger/model/records.py, same columns, same order.
-- Times are UTC instants. Ratios are 0 to 1. NULL is "not measured" or "open ended", never zero.

-- One GPU, or one slice of it, at one instant as one source saw it.
create table reading (
    ts timestamptz not null,
    node varchar not null,
    gpu_uuid varchar not null,
    slice_id varchar not null,
    source varchar not null,
    seen_at timestamptz,
    interval_seconds double not null,
    model varchar,
    slice_profile varchar,
    gpu_util_ratio double,
    mem_copy_util_ratio double,
    sm_active_ratio double,
    gr_engine_active_ratio double,
    tensor_active_ratio double,
    dram_active_ratio double,
    enc_util_ratio double,
    dec_util_ratio double,
    fb_used_bytes bigint,
    fb_reserved_bytes bigint,
    fb_total_bytes bigint,
    power_watts double,
    power_limit_watts double,
    energy_joules double,
    sm_clock_hertz double,
    mem_clock_hertz double,
    gpu_temp_celsius double,
    memory_temp_celsius double,
    throttle_reasons bigint,
    pcie_tx_bytes_per_second double,
    pcie_rx_bytes_per_second double,
    nvlink_bytes_per_second double,
    xid_code bigint,
    ecc_uncorrected_count bigint,
    process_count bigint,
    invalid_count bigint not null,
    quality_flags bigint not null
);

-- One attempt to read one source of one node. Grain: (node, source, ts).
create table source_read (
    ts timestamptz not null,
    node varchar not null,
    source varchar not null,
    scope varchar not null,
    ok boolean not null,
    interval_seconds double not null,
    device_count bigint,
    skipped_lines bigint not null,
    error varchar
);

-- A source saw a workload's pod on a GPU or slice at ts. Grain: (gpu_uuid, slice_id, namespace, pod, ts).
create table holding (
    ts timestamptz not null,
    node varchar not null,
    gpu_uuid varchar not null,
    slice_id varchar not null,
    namespace varchar not null,
    pod varchar not null,
    container varchar,
    source varchar not null,
    share double not null,
    interval_seconds double not null
);

-- A host during [from_at, until_at). Grain: (node, from_at).
create table node (
    node varchar not null,
    cluster varchar not null,
    pool varchar not null,
    model varchar,
    gpu_count bigint not null,
    cpu_milli bigint,
    memory_mib bigint,
    leaf varchar,
    spine varchar,
    nvl_domain varchar,
    from_at timestamptz not null,
    until_at timestamptz
);

-- One physical card with one status during [from_at, until_at). Grain: (gpu_uuid, from_at).
create table asset (
    gpu_uuid varchar not null,
    node varchar not null,
    slot bigint,
    model varchar,
    pool varchar not null,
    status varchar not null,
    origin varchar not null,
    from_at timestamptz not null,
    until_at timestamptz
);

-- A dated fact that takes a node or GPU out of use or sets it aside. Grain: (subject, condition, from_at).
create table condition (
    subject_kind varchar not null,
    subject varchar not null,
    condition varchar not null,
    from_at timestamptz not null,
    until_at timestamptz,
    reason varchar,
    source varchar not null
);

-- How many GPUs a scheduler believes a node offers during [from_at, until_at). Grain: (scheduler, node, from_at).
create table scheduler_node (
    scheduler varchar not null,
    node varchar not null,
    gpu_count bigint not null,
    from_at timestamptz not null,
    until_at timestamptz
);

-- Who pays: one node of a dated tree (division, department, team, user). Grain: (tenant, from_at).
create table tenant (
    tenant varchar not null,
    parent varchar,
    display_name varchar,
    from_at timestamptz not null,
    until_at timestamptz
);

-- Where work waits. Queues of one cohort may borrow from each other. Grain: (queue).
create table queue (
    queue varchar not null,
    tenant varchar not null,
    cohort varchar,
    scheduler varchar not null
);

-- What a queue may use of one flavor (GPU model; empty for any) during a time. Grain: (queue, flavor, from_at).
create table quota (
    queue varchar not null,
    tenant varchar not null,
    flavor varchar not null,
    nominal_gpus double not null,
    borrowing_limit_gpus double,
    lending_limit_gpus double,
    guarantee_gpus double not null,
    weight double not null,
    from_at timestamptz not null,
    until_at timestamptz
);

-- A job, service or notebook, and the shape it asks for. Grain: (workload_id); a later record replaces an earlier one.
create table workload (
    workload_id varchar not null,
    name varchar,
    kind varchar not null,
    stage varchar not null,
    tenant varchar not null,
    "user" varchar,
    queue varchar not null,
    submitted_at timestamptz not null,
    started_at timestamptz,
    ended_at timestamptz,
    pod_count bigint not null,
    num_gpu bigint not null,
    gpu_milli bigint not null,
    cpu_milli bigint not null,
    memory_mib bigint not null,
    model_set varchar,
    min_replicas bigint not null,
    priority bigint not null,
    is_gang boolean not null
);

-- A pod's hold on one GPU or slice during [started_at, ended_at). Grain: (allocation_id); a later record replaces an earlier one.
create table allocation (
    allocation_id varchar not null,
    workload_id varchar not null,
    pod varchar not null,
    node varchar not null,
    gpu_uuid varchar,
    slice_id varchar not null,
    share double not null,
    cpu_milli bigint not null,
    memory_mib bigint not null,
    started_at timestamptz not null,
    ready_at timestamptz,
    ended_at timestamptz
);

-- What a queue ran and what waited, constant during [ts, ts + duration_seconds). Grain: (queue, ts).
create table queue_state (
    ts timestamptz not null,
    queue varchar not null,
    tenant varchar not null,
    duration_seconds double not null,
    nominal_gpus double,
    running_gpus double not null,
    pending_gpus double not null
);

-- What a service was asked to do during [ts, ts + duration_seconds). Grain: (workload_id, ts).
create table service_load (
    ts timestamptz not null,
    workload_id varchar not null,
    duration_seconds double not null,
    requests_per_second double,
    demand_gpus double,
    ready_replicas bigint
);
