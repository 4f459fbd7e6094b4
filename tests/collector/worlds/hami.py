"""The monitor page of a node with two cards, of which a container holds a part of the first."""

from __future__ import annotations

import pytest

from collector.sources.hami import HamiSource
from tests.collector.worlds.case import FIRST, SECOND, Case

TYPE = 'device_type="NVIDIA-NVIDIA H100 80GB HBM3",zone="vGPU"'


def world(request: pytest.FixtureRequest) -> Case:
    target = request.getfixturevalue("target")
    target.page = (
        f'hami_host_gpu_utilization_ratio{{device_index="0",device_uuid="{FIRST}",node="n1",{TYPE}}} 97\n'
        f'hami_host_gpu_utilization_ratio{{device_index="1",device_uuid="{SECOND}",node="n1",{TYPE}}} 0\n'
        f'hami_host_gpu_power_usage_watts{{device_index="0",device_uuid="{FIRST}",node="n1",{TYPE}}} 512.345\n'
        f'hami_vgpu_memory_limit_bytes{{container="c",device_uuid="{FIRST}",namespace="a",pod="p"}} 1e9\n'
    ).encode()
    source = HamiSource(target.url, interval_seconds=15, timeout_seconds=2)
    return Case(source=source, break_it=lambda: setattr(target, "status", 500))
