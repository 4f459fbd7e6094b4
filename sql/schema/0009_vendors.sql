-- How the ledger judges each vendor's cards, filled from gpuledger/model/vendor_rules.py at every start. Grain: vendor.
-- A NULL threshold: that counter decides nothing there.
create table vendor_rule (
    vendor varchar primary key,
    sm_idle_below_ratio double,
    core_idle_below_ratio double,
    gr_engine_idle_below_ratio double,
    gpu_util_idle_below_ratio double,
    dram_idle_below_ratio double,
    is_power_needed boolean not null,
    is_graded_by_core boolean not null,
    productive_from_ratio double not null,
    busy_from_ratio double not null,
    still_tensor_below_ratio double,
    still_dram_below_ratio double
);

alter table gpu_model add column memory_bytes bigint;
