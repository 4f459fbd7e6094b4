"""The page of a Ray node's agent with two cards."""

from __future__ import annotations

import pytest

from collector.sources.ray import RaySource
from tests.collector.worlds.case import Case


def world(request: pytest.FixtureRequest) -> Case:
    target = request.getfixturevalue("target")
    labels = [f'GpuDeviceName="NVIDIA H100 80GB HBM3",GpuIndex="{index}",ip="10.0.0.20"' for index in range(2)]
    target.page = (
        f"ray_node_gpus_utilization{{{labels[0]}}} 97.0\n"
        f"ray_node_gpus_utilization{{{labels[1]}}} 97.0\n"
        f"ray_node_gpu_power_milliwatts{{{labels[0]}}} 512345.0\n"
    ).encode()
    source = RaySource(target.url, node="n1", interval_seconds=15, timeout_seconds=2)
    return Case(
        source=source,
        break_it=lambda: setattr(target, "status", 500),
        uuids=("n1/ray_agent/0", "n1/ray_agent/1"),
    )
