"""A page of AMD's device-metrics-exporter with two cards."""

from __future__ import annotations

import pytest

from collector.sources.amd_exporter import AmdExporterSource
from tests.collector.worlds.case import Case

FIRST, SECOND = "8cff74a1-0000-1000-8021-1a2b3c4d5e6f", "8cff74a1-0000-1000-8022-1a2b3c4d5e6f"
MODEL = 'card_model="102-G30211-0C",card_series="AMD Instinct MI300X OAM",hostname="n1"'


def world(request: pytest.FixtureRequest) -> Case:
    target = request.getfixturevalue("target")
    whole = 'gpu_compute_partition_type="spx",gpu_partition_id="0"'
    labels = [f'gpu_id="{place}",gpu_uuid="{card}",{whole},{MODEL}' for place, card in enumerate((FIRST, SECOND))]
    target.page = (
        f"gpu_gfx_activity{{{labels[0]}}} 97\n"
        f"gpu_gfx_activity{{{labels[1]}}} 97\n"
        f"gpu_package_power{{{labels[0]}}} 512.345\n"
    ).encode()
    source = AmdExporterSource(target.url, interval_seconds=15, timeout_seconds=2)
    return Case(source=source, break_it=lambda: setattr(target, "status", 500), uuids=(FIRST, SECOND), model="MI300X")
