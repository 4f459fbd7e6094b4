"""Pages of simulated AMD cards: what their exporter would write, and the same that the back-fill says."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from collector.devices.page import parse
from collector.mapping.file import load
from collector.mapping.source import MappedTarget
from gpuledger.attribution.resources import is_gpu, is_whole
from gpuledger.model import slice_share, to_table
from gpuledger.simulate.fleet import Host


def amd_hosts(told) -> list[Host]:
    return [host for host in told.simulation.fleet.hosts if host.hardware.source == "amd_exporter"]


def test_a_collector_reads_from_the_page_what_the_back_fill_says(tell) -> None:
    told, rows = tell(2, 1, 1, "amd"), 0
    for host in amd_hosts(told):
        for minute in (0, 777, 1439):
            at = told.simulation.spec.start_at + timedelta(minutes=minute)
            expected = told.tables["reading"].filter((pl.col("node") == host.name) & (pl.col("ts") == at))
            if expected.is_empty():
                continue
            target = MappedTarget(load("amd"), interval_seconds=told.simulation.spec.interval_seconds)
            observation = parse(told.simulation.node_page(host.name, at), at, target)
            assert (observation.reads[0].skipped_lines, observation.reads[0].device_count) == (0, 8)
            got = pl.DataFrame(pl.from_arrow(to_table("reading", observation.readings))).sort("gpu_uuid", "slice_id")
            assert_frame_equal(got, expected.sort("gpu_uuid", "slice_id"), rel_tol=1e-12)
            rows += got.height
    assert rows > 100


def test_a_divided_card_shows_its_partitions_and_power_once(tell) -> None:
    told = tell(2, 1, 1, "amd")
    at = told.simulation.spec.start_at + timedelta(minutes=700)
    whole, parted = (told.simulation.node_page(host.name, at).decode() for host in amd_hosts(told))
    assert whole.count("gpu_prof_sm_active{") == whole.count("gpu_package_power{") == 8
    assert "gpu_prof_sm_active{" not in parted
    powers = [line.rsplit(" ", 1) for line in parted.splitlines() if line.startswith("gpu_package_power{")]
    assert len(powers) == 4 * 8 + 4 * 2
    assert all((float(watts) > 0) == ('gpu_partition_id="0"' in labels) for labels, watts in powers)
    assert parted.count("gpu_gfx_busy_instantaneous{") == 8 * 8


@pytest.mark.parametrize(("resource", "share"), [("amd_com_cpx_nps4", 1 / 8), ("amd_com_dpx_nps2", 0.5)])
def test_a_partition_is_asked_for_as_a_part(resource: str, share: float) -> None:
    assert is_gpu(resource)
    assert not is_whole(resource)
    assert slice_share("MI300X", resource.removeprefix("amd_com_")) == share
