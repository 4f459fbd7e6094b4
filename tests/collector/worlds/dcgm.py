"""A dcgm-exporter page with two cards."""

from __future__ import annotations

import pytest

from collector.sources.dcgm import DcgmSource
from tests.collector.worlds.case import FIRST, SECOND, Case


def world(request: pytest.FixtureRequest) -> Case:
    target = request.getfixturevalue("target")
    target.page = (
        f'DCGM_FI_DEV_GPU_UTIL{{UUID="{FIRST}",modelName="H100",Hostname="n1"}} 97\n'
        f'DCGM_FI_DEV_GPU_UTIL{{UUID="{SECOND}",modelName="H100",Hostname="n1"}} 97\n'
        f'DCGM_FI_DEV_POWER_USAGE{{UUID="{FIRST}",Hostname="n1"}} 512.345\n'
    ).encode()
    source = DcgmSource(target.url, interval_seconds=15, timeout_seconds=2)
    return Case(source=source, break_it=lambda: setattr(target, "status", 500))
