"""A page of an exporter that nobody thought of, and the mapping file that its operator wrote for it."""

from __future__ import annotations

import pytest

from collector.sources.exposition import ExpositionSource
from tests.collector.worlds.case import FIRST, SECOND, Case

MAPPING = """
source = "acme_exporter"

[labels]
uuid = ["card"]
node = ["host"]
model = ["product"]

[[metric]]
names = ["acme_busy"]
column = "gpu_util_ratio"
unit = "percent"

[[metric]]
names = ["acme_power"]
column = "power_watts"
unit = "mW"
"""


def world(request: pytest.FixtureRequest) -> Case:
    target, folder = request.getfixturevalue("target"), request.getfixturevalue("tmp_path")
    mapping = folder / "acme.toml"
    mapping.write_text(MAPPING, encoding="utf-8")
    target.page = (
        f'acme_busy{{card="{FIRST}",host="n1",product="H100"}} 97\n'
        f'acme_busy{{card="{SECOND}",host="n1",product="H100"}} 97\n'
        f'acme_power{{card="{FIRST}",host="n1",product="H100"}} 512345\n'
    ).encode()
    source = ExpositionSource(target.url, mapping=mapping, interval_seconds=15, timeout_seconds=2)
    return Case(source=source, break_it=lambda: setattr(target, "status", 500))
