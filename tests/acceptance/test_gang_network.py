"""A gang that hangs, read from the pages of its hosts: its network falls silent, and the rule is told so."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import polars as pl
import pytest

from analyzers.rules.stalled_allocation import StalledAllocation
from collector.fabric import page as network_page
from collector.sources import dcgm
from gpuledger.model import Window, to_table
from gpuledger.simulate import FleetSpec, Simulation, network, simulate
from warehouse import Warehouse

HOUR = timedelta(hours=1)
PORTS = 4


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulate(FleetSpec(nodes=12, days=3, seed=1))


@pytest.fixture(scope="module")
def hang(simulation) -> tuple[str, list[str], datetime]:
    """The gang that hangs, its hosts, and since when."""
    hosts = {job.workload_id: {hold.host for hold in job.holds} for job in simulation.script.jobs}
    planted = pl.DataFrame(pl.from_arrow(simulation.truth())).filter(pl.col("cause") == "collective_hang")
    workload, at = next(
        (row["subject_id"], row["from_at"])
        for row in planted.sort("from_at").iter_rows(named=True)
        if len(hosts.get(row["subject_id"], ())) > 1
    )
    return workload, [simulation.fleet.hosts[host].name for host in sorted(hosts[workload])], at


@pytest.fixture(scope="module")
def window(hang) -> Window:
    """Whole hours: two before the hour in which the gang hangs, and two after it."""
    hour = hang[2].replace(minute=0, second=0, microsecond=0)
    return Window(hour - 2 * HOUR, hour + 3 * HOUR)


@pytest.fixture(scope="module")
def house(simulation, hang, window) -> Iterator[Warehouse]:
    rows: dict[str, list[object]] = {"reading": [], "source_read": [], "link_reading": []}
    for node in hang[1]:
        cards, ports = dcgm.Target(interval_seconds=60), network_page.Target(interval_seconds=60)
        for minute in range(int((window.to_at - window.from_at).total_seconds() / 60)):
            at = window.from_at + timedelta(minutes=minute)
            read = dcgm.parse(simulation.node_page(node, at), at, cards)
            told = network_page.parse(simulation.network_page(node, at), at, ports)
            rows["reading"] += read.readings
            rows["source_read"] += (*read.reads, *told.reads)
            rows["link_reading"] += told.others["link_reading"]
    end = simulation.spec.end_minute
    with Warehouse.open(None) as opened:
        for name, of in rows.items():
            assert not opened.ingest(name, to_table(name, of), name).rejected
        for name, table in (
            ("workload", simulation._work.workloads(end)),
            ("allocation", simulation._work.allocations(end)),
        ):
            assert not opened.ingest(name, table, name).rejected
        assert opened.build_ledger(window).violations == 0
        yield opened


def test_the_gang_s_network_falls_silent_with_it(house, hang, window) -> None:
    workload, nodes, _ = hang
    rows = house.query("fabric_by_gang", from_at=window.from_at, to_at=window.to_at).to_pylist()
    by_hour = [row for row in rows if row["workload_id"] == workload]
    assert {(row["node_count"], row["told_node_count"], row["shared_node_count"]) for row in by_hour} == {
        (len(nodes), len(nodes), 0)
    }
    before, after = by_hour[0], by_hour[-1]
    assert before["sent_bytes_per_second"] > 1e9 * len(nodes)
    silent = PORTS * network.HEARTBEAT_BYTES_PER_SECOND * len(nodes)
    assert after["sent_bytes_per_second"] == after["received_bytes_per_second"] == pytest.approx(silent)


def test_the_rule_shows_the_network_while_it_stood_still_and_while_it_moved(house, hang, window) -> None:
    (found,) = (one for one in StalledAllocation().run(house, window, {}).findings if one.subject_id == hang[0])
    told = {fact["metric"]: fact["value"] for fact in found.evidence}
    both_ways = 2 * PORTS * network.HEARTBEAT_BYTES_PER_SECOND
    assert told["stalled_fabric_bytes_per_second"] == pytest.approx(both_ways)
    assert told["moving_fabric_bytes_per_second"] > 1e9
