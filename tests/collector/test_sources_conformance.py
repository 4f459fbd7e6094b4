"""What every source promises, whatever it reads: the same suite for each."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from collector.sources.dcgm import DcgmSource
from collector.sources.nvidia_smi import NvidiaSmiSource
from collector.sources.nvml import NvmlSource
from gpuledger.model import RECORDS, Reading, to_table
from gpuledger.model.vocabulary import READ_SCOPES
from gpuledger.ports import Source
from gpuledger.registry import SOURCES, resolve


@dataclass
class Case:
    """One source that shows cards 0 and 1 of node `n1`, card 1 without a power reading, and ways to break it."""

    source: Source
    break_it: Callable[[], None]
    power_watts: float


@pytest.fixture(params=["dcgm", "nvml", "nvidia_smi"])
def case(request):
    case = request.getfixturevalue(f"{request.param}_case")
    yield case
    getattr(case.source, "close", lambda: None)()


@pytest.fixture
def dcgm_case(target) -> Case:
    target.page = (
        b'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-00000000-0000-0000-0000-000000000000",modelName="H100",Hostname="n1"} 97\n'
        b'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-00000001-0000-0000-0000-000000000000",modelName="H100",Hostname="n1"} 97\n'
        b'DCGM_FI_DEV_POWER_USAGE{UUID="GPU-00000000-0000-0000-0000-000000000000",Hostname="n1"} 512.345\n'
    )
    source = DcgmSource(target.url, interval_seconds=15, timeout_seconds=2)
    return Case(source, lambda: setattr(target, "status", 500), 512.345)


@pytest.fixture
def nvml_case(nvml_stub) -> Case:
    nvml_stub.scenario("rc.nvmlDeviceGetPowerUsage.1 3")
    source = NvmlSource(node="n1", interval_seconds=15, timeout_seconds=10, environment=nvml_stub.environment)
    return Case(source, lambda: nvml_stub.scenario("rc.nvmlDeviceGetUtilizationRates 9"), 512.345)


@pytest.fixture
def nvidia_smi_case(tmp_path) -> Case:
    lines = [
        "uuid, name, utilization.gpu [%], power.draw [W]",
        "GPU-00000000-0000-0000-0000-000000000000, NVIDIA H100 80GB HBM3, 97 %, 512.345 W",
        "GPU-00000001-0000-0000-0000-000000000000, NVIDIA H100 80GB HBM3, 97 %, [N/A]",
    ]
    answer = tmp_path / "answer"
    answer.write_text("\n".join(lines))
    stub = Path(__file__).resolve().parents[1] / "stubs" / "nvidia_smi" / "nvidia-smi"
    environment = os.environ | {"NVIDIA_SMI_STUB": str(tmp_path)}
    source = NvidiaSmiSource(node="n1", interval_seconds=15, command=str(stub), environment=environment)
    return Case(source, lambda: (answer.write_text("NVIDIA-SMI has failed"), None)[1], 512.345)


def test_every_registered_source_is_tested_here():
    lists_no_device = {"kube_state_metrics"}
    assert set(SOURCES) - lists_no_device == {"dcgm", "nvml", "nvidia_smi"}
    for name in SOURCES:
        assert hasattr(resolve("sources", name), "read")


def test_a_source_has_a_name_and_an_interval(case):
    assert case.source.name
    assert case.source.interval_seconds == 15


def test_a_read_says_that_the_node_was_read_and_what_it_has(case, now):
    (read,) = case.source.read(now).reads
    assert (read.ok, read.node, read.device_count, read.error) == (True, "n1", 2, None)
    assert (read.ts, read.interval_seconds) == (now, 15)
    assert read.scope in READ_SCOPES


def test_identity_is_the_uuid_and_units_are_ours(case, now):
    first, second = case.source.read(now).readings
    assert first.gpu_uuid == "GPU-00000000-0000-0000-0000-000000000000"
    assert second.gpu_uuid == "GPU-00000001-0000-0000-0000-000000000000"
    assert (first.gpu_util_ratio, first.power_watts, first.model) == (0.97, case.power_watts, "H100")
    assert (first.ts, first.node, first.interval_seconds) == (now, "n1", 15)


def test_what_is_not_measured_is_none(case, now):
    _, second = case.source.read(now).readings
    assert second.power_watts is None
    assert second.quality_flags == 0


def test_values_lie_in_the_bounds_of_their_columns(case, now):
    for reading in case.source.read(now).readings:
        for column in dataclasses.fields(Reading):
            value: Any = getattr(reading, column.name)
            low, high = column.metadata.get("low"), column.metadata.get("high")
            assert value is None or low is None or low <= value
            assert value is None or high is None or value <= high


def test_rows_are_unique_by_the_records_key_and_fit_its_schema(case, now):
    observation = case.source.read(now)
    for name, rows in (("reading", observation.readings), ("source_read", observation.reads)):
        keys = [tuple(getattr(row, column) for column in RECORDS[name].key) for row in rows]
        assert len(set(keys)) == len(keys)
        assert to_table(name, rows).num_rows == len(rows)


def test_a_source_that_fails_says_so_and_comes_back(case, now):
    case.source.read(now)
    case.break_it()
    failed = case.source.read(now + timedelta(seconds=15))
    (read,) = failed.reads
    assert (read.ok, read.node, read.device_count) == (False, "n1", None)
    assert read.error
    assert (failed.readings, failed.holdings) == ((), ())


@pytest.mark.parametrize("fail_first", [True, False])
def test_reading_never_raises(case, now: datetime, fail_first: bool):
    if fail_first:
        case.break_it()
    for turn in range(3):
        assert case.source.read(now + timedelta(seconds=15 * turn)).reads
