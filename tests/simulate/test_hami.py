"""A fleet that HAMi shares: its two pages say what the back-fill says, and nothing that HAMi does not show."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl
import pytest

from collector.devices.page import parse
from collector.mapping.file import load
from collector.mapping.source import MappedTarget
from collector.sources.hami import PAGES
from gpuledger.model import RECORDS, to_table
from gpuledger.simulate import FleetSpec, Simulation, simulate
from gpuledger.simulate.sharing import PARTS


def target(page: str) -> MappedTarget:
    return MappedTarget(load("hami").model_copy(update={"source": PAGES[page]}))


@pytest.fixture(scope="module")
def fleet(collect) -> tuple[Simulation, dict[str, pl.DataFrame]]:
    simulation = simulate(FleetSpec(nodes=2, days=1, seed=3, scenario="hami", tells_pods=True))
    return simulation, {name: pl.DataFrame(pl.from_arrow(table)) for name, table in collect(simulation).items()}


def frame(record: str, rows: Any) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(to_table(record, rows)))


@pytest.mark.parametrize("hours", [0, 7, 13])
def test_pages_say_what_the_back_fill_says(fleet, hours):
    simulation, tables = fleet
    at = simulation.spec.start_at + timedelta(hours=hours)
    readings = tables["reading"].filter(pl.col("ts") == at).drop("seen_at", "interval_seconds")
    for host in simulation.fleet.hosts:
        seen = parse(simulation.node_page(host.name, at), at, target("monitor"))
        found = frame("reading", seen.readings).drop("seen_at", "interval_seconds")
        own = readings.filter(pl.col("node") == host.name)
        assert found.sort("gpu_uuid").equals(own.sort("gpu_uuid"))
    seen = parse(simulation.hami_scheduler_page(at), at, target("scheduler"))
    columns = ["node", "gpu_uuid", "namespace", "pod", "share", "source", "is_stated"]
    found = frame("holding", seen.holdings).select(columns).sort("gpu_uuid", "pod")
    told = tables["holding"].filter(pl.col("ts") == at).select(columns).sort("gpu_uuid", "pod")
    assert found.drop("share").equals(told.drop("share"))
    assert found["share"].to_list() == pytest.approx(told["share"].to_list())


def test_shares_are_the_parts_and_never_more_than_a_card(fleet):
    _, tables = fleet
    for name in ("holding", "reading"):
        assert tables[name].select(RECORDS[name].key).is_unique().all()
    holdings = tables["holding"]
    assert set(holdings["share"]) == {share for parts in PARTS for share in parts}
    together = holdings.group_by("gpu_uuid", "ts").agg(pl.col("share").sum(), pl.len().alias("pods"))
    assert together["share"].to_numpy().max() <= 1 + 1e-9
    assert set(together["pods"]) == {1, 2, 3, 4}


def test_a_container_shows_no_utilization_of_its_own(fleet):
    simulation, _ = fleet
    page = simulation.node_page(simulation.fleet.hosts[0].name, simulation.spec.start_at).decode()
    own = [line for line in page.splitlines() if line.startswith("hami_container_device_utilization_ratio{")]
    assert own
    assert {line.rpartition(" ")[2] for line in own} == {"0"}
