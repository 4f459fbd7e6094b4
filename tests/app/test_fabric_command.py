"""`gpuledger fabric`: what adapters carried, from pages of simulated nodes through the warehouse to the terminal."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from collector.fabric.page import Target, parse
from gpuledger.model import to_table
from gpuledger.simulate import FleetSpec, network, simulate
from gpuledger.testing import FakeClock
from tests.app.conftest import Ran, opened_api

Cli = Callable[..., Ran]


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Ten minutes of the network pages of two nodes."""
    simulation = simulate(FleetSpec(nodes=2, days=1))
    end = simulation.spec.end_at - timedelta(minutes=30)
    targets = {host.name: Target(interval_seconds=60) for host in simulation.fleet.hosts}
    seen = [
        parse(simulation.network_page(node, at), at, target)
        for node, target in targets.items()
        for at in (end - timedelta(minutes=10 - n) for n in range(11))
    ]
    with opened_api(tmp_path, FakeClock(end)) as api:
        links = pa.concat_tables(to_table("link_reading", one.others["link_reading"]) for one in seen)
        reads = pa.concat_tables(to_table("source_read", one.reads) for one in seen)
        assert api.put("link_reading", links, "l").status_code == 200
        assert api.put("source_read", reads, "r").status_code == 200
    return tmp_path / "app.duckdb"


def test_nodes_are_shown_with_what_their_ports_carried(
    cli: Cli, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = cli("fabric", "--warehouse", warehouse, "--format", "json")
    assert (ran.code, ran.err) == (0, "")
    rows = ran.json["rows"]
    assert [row["port_count"] for row in rows] == [4, 4]
    # Two nodes make no gang that spans hosts: heartbeats only, at four ports.
    assert [row["sent_bytes_per_second"] for row in rows] == pytest.approx([4 * network.HEARTBEAT_BYTES_PER_SECOND] * 2)
    monkeypatch.setenv("COLUMNS", "160")
    text = cli("fabric", "--warehouse", warehouse)
    assert text.code == 0
    assert text.out.count("4/4") == 2
    assert all(title in text.out for title in ("sent GB/s", "received GB/s", "use", "downs", "resent"))


def test_a_window_without_readings_says_which_sources_read_them(cli: Cli, warehouse: Path) -> None:
    asked = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z")
    ran = cli("fabric", "--by", "gang", "--warehouse", warehouse, *asked)
    assert ran.code == 0
    assert "no network adapter was read" in ran.out


def test_a_time_that_is_none_is_named(cli: Cli, warehouse: Path) -> None:
    ran = cli("fabric", "--warehouse", warehouse, "--to", "soon")
    assert ran.code != 0
    assert "to: 'soon' is not an ISO 8601 time" in ran.err
