"""Pages of simulated NPUs: what npu-exporter would write, and the same that the back-fill says."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from collector.devices.page import parse
from collector.mapping.file import load
from collector.mapping.source import MappedTarget
from gpuledger.model import FaultEvent, to_table
from gpuledger.ports import Observation
from gpuledger.simulate.fleet import Host


def read(told, host: Host, at: datetime) -> Observation:
    target = MappedTarget(load("ascend"), node=host.name, interval_seconds=told.simulation.spec.interval_seconds)
    return parse(told.simulation.node_page(host.name, at), at, target)


def npu_hosts(told) -> list[Host]:
    return [host for host in told.simulation.fleet.hosts if host.hardware.source == "npu_exporter"]


@pytest.mark.parametrize(("scenario", "nodes"), [("ascend", 12), ("npu", 2)])
def test_a_collector_reads_from_the_page_what_the_back_fill_says(tell, scenario: str, nodes: int) -> None:
    told = tell(nodes, 3 if nodes > 2 else 1, 1, scenario)
    rows = 0
    for host in npu_hosts(told):
        for minute in (0, 777, 1439):
            at = told.simulation.spec.start_at + timedelta(minutes=minute)
            expected = told.tables["reading"].filter((pl.col("node") == host.name) & (pl.col("ts") == at))
            if expected.is_empty():
                continue
            observation = read(told, host, at)
            assert (observation.reads[0].skipped_lines, observation.reads[0].device_count) == (0, 8)
            got = pl.DataFrame(pl.from_arrow(to_table("reading", observation.readings))).sort("gpu_uuid", "slice_id")
            assert_frame_equal(got, expected.sort("gpu_uuid", "slice_id"), rel_tol=1e-12)
            rows += got.height
    assert rows > 60


def test_the_pods_on_a_page_are_those_that_hold_the_chips_and_their_parts(tell) -> None:
    told = tell(2, 1, 1, "npu")
    at = told.simulation.spec.start_at + timedelta(minutes=700)
    held = told.tables["allocation"].filter(
        (pl.col("started_at") <= at) & (pl.col("ended_at").is_null() | (pl.col("ended_at") > at))
    )
    seen = {
        (of.gpu_uuid, of.slice_id, of.pod, of.share) for host in npu_hosts(told) for of in read(told, host, at).holdings
    }
    assert seen == set(held.select("gpu_uuid", "slice_id", "pod", "share").iter_rows())
    assert {share for *_, share in seen} == {1.0, 0.5, 0.25, 0.125}


def test_a_page_is_what_npu_exporter_writes(tell) -> None:
    told = tell(2, 1, 1, "npu")
    at = told.simulation.spec.start_at + timedelta(minutes=700)
    whole, parted = (told.simulation.node_page(host.name, at).decode() for host in npu_hosts(told))
    assert "machine_npu_nums 8\n" in whole
    assert whole.count("npu_chip_info_utilization{") == whole.count("npu_chip_info_hbm_total_memory{") == 8
    assert "vnpu_pod_aicore_utilization{" not in whole
    assert "npu_chip_info_hbm" not in parted
    parts = [line for line in parted.splitlines() if line.startswith("vnpu_pod_total_memory{")]
    assert len(parts) == 2 * (4 + 2 + 7 + 3)
    assert all('v_dev_id="1' in line and "vdie_id" not in line for line in parts)
    written = [int(line.rsplit(" ", 1)[1]) for line in whole.splitlines() if line.startswith("npu_chip_info")]
    assert {0 < at.timestamp() * 1000 - ms < 10_000 for ms in written} == {True}


def test_a_fault_code_stands_on_the_page_and_is_told_once(tell) -> None:
    told = tell(12, 3, 1, "ascend")
    faults = told.tables["fault_event"].filter(pl.col("kind") == "npu_fault").sort("ts")
    assert set(faults["code"]) == {"80E18402", "80E01809"}
    first = faults.row(0, named=True)
    target = MappedTarget(load("ascend"), node=first["node"], interval_seconds=60)
    seen: list[FaultEvent] = []
    for minutes in (-1, 0, 1, 399, 400):
        at = first["ts"] + timedelta(minutes=minutes)
        seen += parse(told.simulation.node_page(first["node"], at), at, target).others.get("fault_event", ())
    (event,) = seen
    columns = ("ts", "node", "gpu_uuid", "vendor", "kind", "code", "source")
    assert {name: getattr(event, name) for name in columns} == {name: first[name] for name in columns}
