-- What schedulers know: nodes, quotas that may be unlimited, resources of queues, waits with their causes, events of work.

alter table queue add column parent varchar;
alter table queue add column status varchar default 'open';
alter table queue alter column status set not null;
alter table queue alter column status drop default;

alter table workload add column scheduler varchar default '';
alter table workload add column namespace varchar default '';
alter table workload add column status varchar default 'unknown';
alter table workload add column eligible_at timestamptz;
alter table workload add column attempt bigint default 0;
alter table workload add column pending_cause varchar;
alter table workload add column pending_reason varchar;
alter table workload alter column scheduler set not null;
alter table workload alter column scheduler drop default;
alter table workload alter column namespace set not null;
alter table workload alter column namespace drop default;
alter table workload alter column status set not null;
alter table workload alter column status drop default;
alter table workload alter column attempt set not null;
alter table workload alter column attempt drop default;

alter table queue_state alter column pending_gpus drop not null;
alter table queue_state add column borrowed_gpus double;
alter table queue_state add column lent_gpus double;
alter table queue_state add column reserved_gpus double;

-- What a queue may use of one flavor. NULL: no such limit, or what `not_reported` names. Grain: (queue, flavor, from_at).
alter table quota rename to quota_before;
create table quota (
    queue varchar not null,
    tenant varchar not null,
    flavor varchar not null,
    nominal_gpus double,
    borrowing_limit_gpus double,
    lending_limit_gpus double,
    limit_gpus double,
    guarantee_gpus double not null,
    weight double not null,
    not_reported varchar not null,
    from_at timestamptz not null,
    until_at timestamptz
);
insert into quota by name select *, '' as not_reported from quota_before;
drop table quota_before;

-- What a scheduler has and gave away of one GPU resource of a node. Grain: (scheduler, node, resource, from_at).
create table node_state (
    scheduler varchar not null,
    node varchar not null,
    resource varchar not null,
    capacity double not null,
    allocatable double,
    allocated double not null,
    free double not null,
    is_ready boolean not null,
    is_schedulable boolean not null,
    reason varchar,
    topology varchar,
    from_at timestamptz not null,
    until_at timestamptz
);

-- What a scheduler says of one resource of a queue, in its own unit. Grain: (queue, flavor, resource, from_at).
create table queue_resource (
    queue varchar not null,
    flavor varchar not null,
    resource varchar not null,
    nominal double,
    "limit" double,
    used double,
    reserved double,
    borrowed double,
    lent double,
    pending double,
    from_at timestamptz not null,
    until_at timestamptz
);

-- Why a workload waited during [from_at, until_at), as its scheduler said. Grain: (workload_id, from_at).
create table wait (
    workload_id varchar not null,
    from_at timestamptz not null,
    until_at timestamptz,
    cause varchar not null,
    reason varchar not null,
    message varchar,
    gpus double,
    pods bigint
);

-- A moment in a workload's life, as its scheduler dates it. Grain: (workload_id, ts, kind, pod).
create table workload_event (
    workload_id varchar not null,
    ts timestamptz not null,
    kind varchar not null,
    pod varchar not null,
    reason varchar,
    beneficiary varchar
);

-- Why work waits, the most specific first, and who can end it; filled from gpuledger/model/vocabulary.py at every start.
create table pending_cause (
    cause varchar primary key,
    rank bigint not null,
    blame varchar not null,
    is_bottleneck boolean not null
);
