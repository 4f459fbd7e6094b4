"""The metrics page of a Ray node's agent: cards one by one, and never times their number."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from collector.devices.page import parse
from collector.exporters import DeviceReader, is_of_device
from collector.exposition import Series
from collector.mapping.file import load
from collector.mapping.source import MappedTarget
from gpuledger.model import Reading

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)


def read(page: bytes) -> tuple[list[Reading], dict[str, int | None]]:
    seen = parse(page, NOW, MappedTarget(load("ray"), interval_seconds=15))
    return list(seen.readings), {read.node: read.device_count for read in seen.reads}


def check_062(page: bytes) -> None:
    readings, cards = read(page)
    used = [reading.gpu_util_ratio or 0.0 for reading in readings]
    assert cards == {"10.0.0.5": 8}
    assert used == [0.5] * 8
    assert sum(used) == 4.0
    assert sum(used) / len(used) == 0.5
    assert sum(used) <= 8


def test_062_half_of_eight_cards_is_four_and_fifty_percent() -> None:
    labels = [
        f'instance="10.0.0.5:8080",RayNodeType="worker",GpuIndex="{i}",GpuDeviceName="NVIDIA H100"' for i in range(8)
    ]
    lines = [f"ray_node_gpus_utilization{{{label}}} 50" for label in labels]
    check_062("\n".join([*lines, 'ray_node_gpus_available{instance="10.0.0.5:8080"} 8\n']).encode())


def test_062_the_public_input(shared) -> None:
    check_062((shared / "problems" / "062-ray-times-n.prom").read_bytes())


@pytest.mark.parametrize("value", ["400", "100.5", "-1", "NaN"])
def test_more_than_all_of_a_card_is_no_measurement(value: str) -> None:
    ((reading,), _) = read(f'ray_node_gpus_utilization{{GpuIndex="0",ip="10.0.0.5"}} {value}\n'.encode())
    assert reading.gpu_util_ratio is None
    assert reading.invalid_count == 1


def test_sums_over_a_node_are_no_card() -> None:
    readings, cards = read(b'ray_node_gpus_utilization{ip="10.0.0.5"} 400\nray_node_gpus_available{ip="10.0.0.5"} 8\n')
    assert readings == []
    assert cards == {"unknown": 0}


def test_what_comes_by_other_ways_counts_no_card_a_second_time() -> None:
    """A Prometheus that scrapes dcgm-exporter and Ray has each card twice, once without a name."""
    assert not is_of_device("ray_node_gpus_utilization")
    assert DeviceReader().read(Series("ray_node_gpus_utilization", {"GpuIndex": "0", "ip": "10.0.0.5"})) is None
