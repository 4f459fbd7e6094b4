"""`gpuledger fabric`: what adapters carried, from pages of simulated nodes through the warehouse to the terminal."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from collector.fabric.page import Target, parse
from gpuledger.app.cli import app
from gpuledger.errors import BadInput
from gpuledger.model import to_table
from gpuledger.simulate import FleetSpec, network, simulate
from gpuledger.testing import FakeClock
from tests.app.conftest import opened_api


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


def ran(*arguments: object) -> str:
    """What the command prints; it is run here, without a process of its own."""
    done = CliRunner().invoke(app, ["fabric", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_nodes_are_shown_with_what_their_ports_carried(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = json.loads(ran("--warehouse", warehouse, "--format", "json"))["rows"]
    assert [row["port_count"] for row in rows] == [4, 4]
    # Two nodes make no gang that spans hosts: heartbeats only, at four ports.
    assert [row["sent_bytes_per_second"] for row in rows] == pytest.approx([4 * network.HEARTBEAT_BYTES_PER_SECOND] * 2)
    monkeypatch.setenv("COLUMNS", "160")
    text = ran("--warehouse", warehouse)
    assert text.count("4/4") == 2
    assert all(title in text for title in ("sent GB/s", "received GB/s", "use", "downs", "resent"))


def test_a_window_without_readings_says_which_sources_read_them(warehouse: Path) -> None:
    text = ran(
        "--by", "gang", "--warehouse", warehouse, "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z"
    )
    assert "no network adapter was read" in text


def test_a_time_that_is_none_is_named(warehouse: Path) -> None:
    with pytest.raises(BadInput, match="to: 'soon' is not an ISO 8601 time"):
        ran("--warehouse", warehouse, "--to", "soon")
