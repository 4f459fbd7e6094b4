from __future__ import annotations

from datetime import timedelta

import polars as pl
import pyarrow as pa
import pytest

from gpuledger.model import RECORDS, arrow_schema
from gpuledger.simulate import FleetSpec, simulate
from gpuledger.simulate.thinning import thin

NODES, DAYS = 12, 3
WASTE = {"idle_allocation", "gang_partial_idle", "stalled_allocation", "fragmentation"}


@pytest.mark.parametrize("mix", ["training", "serving", "notebooks", "ascend"])
def test_every_mix_plants_waste_advice_faults_and_look_alikes(tell, mix: str) -> None:
    truth = tell(NODES, DAYS, 1, mix).truth
    assert set(truth["kind"]) == {"waste", "advice", "health", "lookalike"}
    assert set(truth.filter(pl.col("kind") == "waste")["rule"]) >= WASTE
    assert {"low_activity", "low_mfu"} <= set(truth.filter(pl.col("kind") == "advice")["rule"])
    assert {"hardware_fault", "throttling"} <= set(truth.filter(pl.col("kind") == "health")["rule"])


def test_a_clean_fleet_has_look_alikes_only(tell) -> None:
    truth = tell(NODES, DAYS, 1, "clean").truth
    assert set(truth["kind"]) == {"lookalike"}
    assert {"checkpoint_phase", "rl_rollout", "long_steps", "short_spin", "silent_profiling"} <= set(truth["cause"])


@pytest.mark.parametrize("mix", ["training", "serving", "notebooks", "ascend"])
def test_waste_is_planted_once_on_a_card(tell, mix: str) -> None:
    waste = tell(NODES, DAYS, 1, mix).truth.filter((pl.col("kind") == "waste") & pl.col("gpu_uuid").is_not_null())
    minutes = waste.with_columns(
        share=pl.col("gpu_hours") / ((pl.col("until_at") - pl.col("from_at")).dt.total_seconds() / 3600),
        at=pl.datetime_ranges("from_at", pl.col("until_at") - timedelta(minutes=1), "1m"),
    ).explode("at")
    assert minutes.group_by("gpu_uuid", "at").agg(pl.col("share").sum())["share"].max() <= 1 + 1e-6


@pytest.mark.parametrize("mix", ["training", "ascend"])
def test_what_work_tells_has_its_schema_and_unique_keys(tell, collect, mix: str) -> None:
    told = tell(NODES, DAYS, 1, mix)
    tables = collect(told.simulation)
    assert {"job_step", "job_model", "workload_phase", "checkpoint", "fault_event"} <= set(tables)
    for name, table in tables.items():
        assert table.schema == arrow_schema(name)
        assert told.tables[name].select(RECORDS[name].key).is_unique().all(), name


def test_a_frozen_job_ends_no_step_after_its_hang(tell) -> None:
    told = tell(NODES, DAYS, 1, "training")
    frozen = told.truth.filter(pl.col("cause") == "no_progress").group_by("subject_id").agg(pl.col("from_at").min())
    steps = told.tables["job_step"].join(frozen, left_on="workload_id", right_on="subject_id")
    assert steps.height > 0
    assert (steps["ts"] <= steps["from_at"]).all()


def test_npus_say_core_activity_and_no_sms(tell) -> None:
    readings = tell(NODES, DAYS, 1, "ascend").tables["reading"]
    npus, gpus = readings.filter(pl.col("source") == "npu_exporter"), readings.filter(pl.col("source") == "dcgm")
    assert npus.height > gpus.height > 0
    unknown_to_npus = ("sm_active_ratio", "tensor_active_ratio", "energy_joules", "xid_code")
    assert all(npus[name].null_count() == npus.height for name in unknown_to_npus)
    told = ("core_active_ratio", "gpu_util_ratio", "dram_active_ratio", "fb_used_bytes", "nvlink_bytes_per_second")
    assert all(npus[name].null_count() == 0 for name in told)
    assert gpus["core_active_ratio"].null_count() == gpus.height


def test_hot_cards_and_ecc_errors_show_what_was_planted(tell) -> None:
    told = tell(NODES, DAYS, 1, "training")
    readings = told.tables["reading"]
    hot = told.truth.filter(pl.col("cause") == "hw_thermal")
    thermal = readings.filter(pl.col("throttle_reasons") & 0x40 > 0)
    assert set(thermal["gpu_uuid"]) == set(hot["gpu_uuid"])
    assert thermal["ts"].is_between(hot["from_at"].min(), hot["until_at"].max(), closed="left").all()
    worn = told.truth.filter(pl.col("cause") == "ecc_uncorrected")
    assert set(readings.filter(pl.col("ecc_uncorrected_count") > 0)["gpu_uuid"]) == set(worn["gpu_uuid"])


def test_thinning_takes_about_a_fifth_and_fails_the_reads_of_its_gaps() -> None:
    simulation = simulate(FleetSpec(nodes=8, days=3, seed=1, scenario="clean"))
    parts: dict[str, list[pa.Table]] = {}
    for name, table in thin(simulation, 0.2, 1):
        parts.setdefault(name, []).append(table)
    rows = {name: pl.DataFrame(pl.from_arrow(pa.concat_tables(tables))) for name, tables in parts.items()}
    whole = 8 * 8 * 3 * 1440
    assert rows["reading"].height / whole == pytest.approx(0.8, abs=0.04)
    failed = rows["source_read"].filter(~pl.col("ok"))
    assert failed.height / rows["source_read"].height == pytest.approx(0.15, abs=0.04)
    assert failed["device_count"].null_count() == failed.height
    both = rows["reading"].join(failed, on=["node", "ts"])
    assert both.height == 0


def test_each_vendors_cards_say_what_their_exporter_says(tell) -> None:
    readings = tell(12, 1, 1, "every_vendor").tables["reading"]
    amd = readings.filter(pl.col("source") == "amd_exporter")
    assert set(readings["source"]) == {"dcgm", "npu_exporter", "amd_exporter", "hami"}
    assert set(amd["model"]) == {"MI300X"}
    assert amd["gpu_util_ratio"].null_count() == amd["power_watts"].null_count() == 0
    unknown = ("sm_active_ratio", "tensor_active_ratio", "core_active_ratio", "xid_code", "enc_util_ratio")
    assert all(amd[name].null_count() == amd.height for name in unknown)
