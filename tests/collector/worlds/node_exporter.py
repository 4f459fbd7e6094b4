"""A node_exporter page with two ports."""

from __future__ import annotations

import pytest

from collector.sources.node_exporter import NodeExporterSource
from tests.collector.worlds.case import Case


def world(request: pytest.FixtureRequest) -> Case:
    target = request.getfixturevalue("target")
    target.page = (request.getfixturevalue("recordings") / "node_exporter_two_ports.prom").read_bytes()
    source = NodeExporterSource(target.url, interval_seconds=15, timeout_seconds=2)
    return Case(source=source, break_it=lambda: setattr(target, "status", 500), lists_devices=False)
