-- How far the records can be trusted, by hour. Worked out after each build of the ledger, for the same hours.

-- What one source said of one card or slice in an hour. Grain: (hour_at, source, node, gpu_uuid, slice_id).
-- `*_count` counts readings that had the value. `interval_seconds` is the stated spacing, else the median distance.
-- `energy_joules` is what the energy counter rose by, resets seen through; NULL where no two readings have it.
create table reading_hour (
    hour_at timestamptz not null,
    source varchar not null,
    node varchar not null,
    gpu_uuid varchar not null,
    slice_id varchar not null,
    first_at timestamptz not null,
    last_at timestamptz not null,
    interval_seconds double not null,
    reading_count bigint not null,
    rejected_count bigint not null,
    contradicted_count bigint not null,
    gpu_util_count bigint not null,
    sm_active_count bigint not null,
    tensor_active_count bigint not null,
    dram_active_count bigint not null,
    fb_used_count bigint not null,
    power_count bigint not null,
    nvlink_count bigint not null,
    energy_count bigint not null,
    energy_joules double,
    energy_reset_count bigint not null,
    energy_impossible_count bigint not null
);

-- Something that lowers trust in what a source says, by hour. Grain: (hour_at, source, subject_kind, subject, kind, detail).
-- `kind` is one of QUALITY_KINDS (gpuledger/model/vocabulary.py); docs/data-quality.md says what `count` and `value` are of each.
create table quality (
    hour_at timestamptz not null,
    source varchar not null,
    subject_kind varchar not null,
    subject varchar not null,
    kind varchar not null,
    detail varchar not null,
    count bigint not null,
    value double
);
