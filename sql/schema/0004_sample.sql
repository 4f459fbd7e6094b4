-- Samples of remote write as they came, until the rows they belong to are whole: fragments come apart, late and twice.

-- A label set of a sender. Grain: (series_id), a hash of the labels. node and gpu_uuid (empty: none) are those it names.
create table series (
    series_id ubigint not null,
    name varchar not null,
    labels varchar not null,
    target varchar not null,
    source varchar not null,
    gpu_uuid varchar not null,
    node varchar,
    first_seen_at timestamptz not null,
    last_seen_at timestamptz not null
);

-- One value of a series; the first one of an instant stays. Grain: (series_id, ts). seq numbers the requests as committed.
create table sample (
    series_id ubigint not null,
    ts timestamptz not null,
    value double not null,
    received_at timestamptz not null,
    seq bigint not null
);

-- How far samples have become rows. One row.
create table sample_progress (
    assembled_seq bigint not null
);

insert into sample_progress values (0);
