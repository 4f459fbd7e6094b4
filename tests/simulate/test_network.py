"""The ports of simulated hosts: counters that only rise, traffic of gangs that span hosts, silence of hung ones."""

from __future__ import annotations

import urllib.error
import urllib.request
from datetime import datetime, timedelta
from itertools import pairwise

import polars as pl
import pytest

from collector.fabric.page import Target, parse
from gpuledger.model import LinkReading
from gpuledger.simulate import network, serve
from gpuledger.testing import FakeClock

HOUR = timedelta(hours=1)
IDLE_HOUR = network.HEARTBEAT_BYTES_PER_SECOND * 3600


def ports(told, node: str, at: datetime) -> list[LinkReading]:
    seen = parse(told.simulation.network_page(node, at), at, Target())
    (read,) = seen.reads
    assert (read.ok, read.node, read.skipped_lines) == (True, node, 0)
    return list(seen.others["link_reading"])


def total(shown: list[LinkReading]) -> int:
    return sum(port.sent_bytes or 0 for port in shown)


def sent_bytes(told, node: str, at: datetime, until: datetime) -> int:
    """What all ports of `node` sent meanwhile."""
    before, after = (total(ports(told, node, moment)) for moment in (at, until))
    return after - before


def gang_hosts(told) -> dict[str, set[int]]:
    return {
        job.workload_id: hosts for job in told.simulation.script.jobs if len(hosts := {h.host for h in job.holds}) > 1
    }


def whole_hours(told, node: str, workload: str) -> list[datetime]:
    """Hours of the span in which `workload` holds all cards of `node`, and every read succeeded."""
    held = told.tables["allocation"].filter((pl.col("node") == node) & (pl.col("workload_id") == workload))
    end = told.simulation.spec.end_at
    begin, until = held["started_at"].max(), held["ended_at"].fill_null(end).min()
    first = begin.replace(minute=0, second=0, microsecond=0) + HOUR
    reads = told.tables["source_read"].filter(pl.col("node") == node)
    hours = [first + n * HOUR for n in range(int((min(until, end) - first) / HOUR))]
    is_read = reads.filter(pl.col("ok"))["ts"].to_list()
    return [at for at in hours if sum(at <= ts <= at + HOUR for ts in is_read) == 61]


@pytest.fixture(scope="module")
def gang(small) -> tuple[str, str]:
    """A workload on several hosts, and one of these."""
    workload, hosts = next((workload, hosts) for workload, hosts in gang_hosts(small).items() if len(hosts) > 1)
    return workload, small.simulation.fleet.hosts[min(hosts)].name


def test_a_host_shows_a_port_for_every_two_cards(small, gang) -> None:
    shown = ports(small, gang[1], small.simulation.spec.start_at)
    assert [port.device for port in shown] == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]
    assert {(port.state, port.physical_state, port.rate_bits_per_second) for port in shown} == {
        ("active", "link_up", 400e9)
    }
    assert all(port.sent_bytes == port.received_bytes for port in shown)


def test_a_gang_sends_what_its_cards_send_over_pcie_beyond_polling(small, gang) -> None:
    workload, node = gang
    at = whole_hours(small, node, workload)[0]
    told = small.tables["reading"].filter(
        (pl.col("node") == node) & pl.col("ts").is_between(at, at + HOUR, closed="left")
    )
    over = (told["pcie_tx_bytes_per_second"] - network.SPINNING_BYTES_PER_SECOND).clip(0).sum() * 60
    assert over > 1e12
    assert sent_bytes(small, node, at, at + HOUR) == pytest.approx(over + 4 * IDLE_HOUR, rel=1e-9)


def test_counters_only_rise_between_two_ticks_and_across_blocks(small, gang) -> None:
    begin = small.simulation.spec.start_at
    moments = [begin + timedelta(seconds=second) for second in (0, 7, 59, 60, 14_399, 14_400, 14_415, 200_000)]
    counts = [total(ports(small, gang[1], at)) for at in moments]
    assert counts[0] == 0
    assert all(before < after for before, after in pairwise(counts))


def test_a_hung_gang_sends_nothing_but_heartbeats(tell) -> None:
    told = tell(12, 3, 1)
    hung = told.truth.filter(pl.col("cause") == "collective_hang")
    nodes = dict(told.tables["asset"].select("gpu_uuid", "node").iter_rows())
    quiet = 0
    for row in hung.filter(pl.col("until_at") - pl.col("from_at") > 2 * HOUR).iter_rows(named=True):
        if row["subject_id"] in gang_hosts(told):
            at = row["from_at"] + timedelta(minutes=10)
            assert sent_bytes(told, nodes[row["gpu_uuid"]], at, at + HOUR) <= 4 * IDLE_HOUR * 1.01
            quiet += 1
    assert quiet > 0


def test_the_server_shows_the_network_of_each_node(small) -> None:
    clock = FakeClock(small.simulation.spec.end_at)
    with serve(small.simulation, "127.0.0.1:0", clock) as live:
        with urllib.request.urlopen(live.network_urls[0], timeout=10) as answer:
            first = small.simulation.fleet.hosts[0].name
            assert answer.read() == small.simulation.network_page(first, clock.now())
        with pytest.raises(urllib.error.HTTPError) as missing:
            urllib.request.urlopen(live.url + "/nodes/none/network", timeout=10)
        assert missing.value.code == 404
        missing.value.close()
