-- What the further ways in need: pods, quality events, sources that do not say how often they read, more of DCGM.

alter table reading alter column interval_seconds drop not null;
alter table source_read alter column interval_seconds drop not null;
alter table holding alter column interval_seconds drop not null;

alter table reading add column sm_occupancy_ratio double;
alter table reading add column fp16_active_ratio double;
alter table reading add column fp32_active_ratio double;
alter table reading add column fp64_active_ratio double;
alter table reading add column pcie_replay_count bigint;
alter table reading add column row_remap_uncorrectable_count bigint;
alter table reading add column row_remap_correctable_count bigint;
alter table reading add column row_remap_failure bigint;

-- A Kubernetes pod that asks for GPUs: when it ran and whose it is. Grain: (uid); a later record fills an earlier one.
create table pod (
    uid varchar not null,
    cluster varchar not null,
    namespace varchar not null,
    pod varchar not null,
    node varchar,
    workload_id varchar,
    gpu_count double,
    resource varchar,
    phase varchar,
    owner_kind varchar,
    owner_name varchar,
    labels varchar,
    created_at timestamptz,
    started_at timestamptz,
    ended_at timestamptz,
    seen_at timestamptz not null
);

-- Something that lowers trust in what a source says. Grain: (ts, source, subject, kind, detail).
create table quality_event (
    ts timestamptz not null,
    source varchar not null,
    subject_kind varchar not null,
    subject varchar not null,
    kind varchar not null,
    detail varchar not null,
    count bigint not null
);
