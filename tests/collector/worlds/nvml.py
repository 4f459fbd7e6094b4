"""NVML's stub library with two cards."""

from __future__ import annotations

import pytest

from collector.sources.nvml import NvmlSource
from tests.collector.worlds.case import Case


def world(request: pytest.FixtureRequest) -> Case:
    stub = request.getfixturevalue("nvml_stub")
    stub.scenario("rc.nvmlDeviceGetPowerUsage.1 3")
    source = NvmlSource(node="n1", interval_seconds=15, timeout_seconds=10, environment=stub.environment)
    return Case(source=source, break_it=lambda: stub.scenario("rc.nvmlDeviceGetUtilizationRates 9"))
