"""An npu-exporter page with two NPUs, dated by when each was measured."""

from __future__ import annotations

import pytest

from collector.sources.npu_exporter import NpuExporterSource
from tests.collector.worlds.case import Case

FIRST, SECOND = "185011D4-21104518-A0C4ED94-14CC040A-56102003", "185011D4-21E04718-93B2ED94-14CC040A-BF102003"


def world(request: pytest.FixtureRequest) -> Case:
    target, now = request.getfixturevalue("target"), request.getfixturevalue("now")
    measured = int(now.timestamp() * 1000) - 4_200
    labels = [f'id="{place}",model_name="910B3-Ascend-V1",vdie_id="{die}"' for place, die in enumerate((FIRST, SECOND))]
    target.page = (
        f"npu_chip_info_utilization{{{labels[0]}}} 97 {measured}\n"
        f"npu_chip_info_utilization{{{labels[1]}}} 97 {measured + 350}\n"
        f"npu_chip_info_power{{{labels[0]}}} 312.3 {measured}\n"
    ).encode()
    source = NpuExporterSource(target.url, node="n1", interval_seconds=15, timeout_seconds=2)
    return Case(
        source=source,
        break_it=lambda: setattr(target, "status", 500),
        uuids=(FIRST, SECOND),
        model="Ascend 910B",
        power_watts=312.3,
        activity=("core_active_ratio", 0.97),
    )
