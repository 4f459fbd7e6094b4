-- Faults as gpuledger recognised them, from readings, drivers and schedulers. A fault keeps the instant with which it was
-- first recognised; what is told of it later extends it. `last_at` is when it was last told, `event_count` how often in the
-- span that was looked at last; `sources` who told it; `is_begin_known` is false where a card showed it when first seen.
-- Grain: (node, gpu_uuid, kind, code, ts). `gpu_uuid` is empty for a node.
create table fault (
    ts timestamptz not null,
    last_at timestamptz not null,
    node varchar not null,
    gpu_uuid varchar not null,
    vendor varchar not null,
    kind varchar not null,
    code varchar not null,
    event_count bigint not null,
    sources varchar[] not null,
    detail varchar,
    is_begin_known boolean not null,
    is_told boolean not null,
    noted_at timestamptz not null
);
