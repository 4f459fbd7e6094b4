"""Ports of network adapters: recordings against files written by reading them, and what breaks while it is read."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from collector.fabric import page, sysfs
from collector.fabric.ports import MAX_PORTS, Reader
from collector.sources.infiniband import InfinibandSource
from collector.sources.node_exporter import NodeExporterSource
from gpuledger.model import LinkReading
from gpuledger.ports import Observation
from tests.collector.sysfs_tree import files_of, plant

EXPECTED = Path(__file__).resolve().parents[1] / "expected"
IDENTITY = {"ts", "node", "device", "port", "source", "interval_seconds"}
PORT = "sys/class/infiniband/mlx5_0/ports/1/"


def expected_of(source: str, name: str) -> dict[str, Any]:
    told: dict[str, Any] = yaml.safe_load((EXPECTED / source / f"{name}.yaml").read_text())
    return told


def rows_of(observation: Observation) -> list[dict[str, Any]]:
    rows = sorted(observation.others.get("link_reading", ()), key=lambda row: (row.device, row.port))
    return [
        {"device": row.device, "port": row.port, "values": {k: v for k, v in told(row).items() if k not in IDENTITY}}
        for row in rows
    ]


def told(row: LinkReading) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(row).items() if value not in (None, "", "unknown")}


def events_of(observation: Observation) -> dict[str, int]:
    return {f"{event.kind}/{event.detail}": event.count for event in observation.others.get("quality_event", ())}


def reader() -> Reader:
    return Reader("n1", "infiniband", "infiniband:n1", 15.0)


def source_of(root: Path) -> InfinibandSource:
    return InfinibandSource(node="n1", root=root, interval_seconds=15)


def check_sysfs(recording: str, name: str, now, tmp_path) -> None:
    """The pure reading and the files themselves give the same."""
    plant(tmp_path / "adapters", recording)
    for seen in (sysfs.parse(files_of(recording), now, reader()), source_of(tmp_path / "adapters").read(now)):
        assert rows_of(seen) == expected_of("infiniband", name)["rows"]
        assert events_of(seen) == expected_of("infiniband", name)["events"]
        assert {(row.ts, row.node, row.source) for row in seen.others["link_reading"]} == {(now, "n1", "infiniband")}


def test_published_files_give_exactly_the_expected_rows(shared, now, tmp_path):
    recording = (shared / "fixtures/exposition/infiniband_sysfs.txt").read_text()
    check_sysfs(recording, "infiniband_sysfs", now, tmp_path)


def test_our_files_give_exactly_the_expected_rows(recordings, now, tmp_path):
    check_sysfs((recordings / "infiniband_two_adapters.txt").read_text(), "infiniband_two_adapters", now, tmp_path)


def check_page(content: bytes, name: str, now) -> None:
    expected = expected_of("node_exporter", name)
    target = page.Target()
    for _ in range(2):
        seen = page.parse(content, now, target)
        assert rows_of(seen) == expected["rows"]
        assert events_of(seen) == expected["events"]
        (read,) = seen.reads
        assert (read.ok, read.node, read.skipped_lines) == (True, expected["node"], "refused_line" in str(expected))


def test_the_published_page_gives_exactly_the_expected_rows(shared, now):
    content = (shared / "fixtures/exposition/node_exporter_infiniband.prom").read_bytes()
    check_page(content, "node_exporter_infiniband", now)


def test_our_page_gives_exactly_the_expected_rows(recordings, now):
    check_page((recordings / "node_exporter_two_ports.prom").read_bytes(), "node_exporter_two_ports", now)


@pytest.mark.parametrize(("count", "is_at_least"), [("4294967294", False), ("4294967295", True), ("4294967296", False)])
def test_only_the_last_value_of_a_short_counter_is_a_lower_bound(now, count, is_at_least):
    recording = f"{PORT}counters/port_xmit_data\t{count}\n"
    (row,) = sysfs.parse(files_of(recording), now, reader()).others["link_reading"]
    assert (row.sent_bytes, row.at_least) == (4 * int(count), "sent_bytes" if is_at_least else "")


@pytest.mark.parametrize(
    "text",
    ["ten Gb/sec", "1e3 Gb/sec", "100000000 Gb/sec", "-1 Gb/sec", "\u0661 Gb/sec", "100", "100 Gb/secret", "9" * 400],
)
def test_a_rate_that_is_none_is_unknown_and_counted(now, text):
    seen = sysfs.parse({"mlx5_0/ports/1/rate": text, "mlx5_0/ports/1/state": "4: ACTIVE"}, now, reader())
    (row,) = seen.others["link_reading"]
    assert (row.rate_bits_per_second, row.state) == (None, "active")
    assert events_of(seen) == {"rejected_value/rate of a port is not readable, or no value": 1}


def test_a_file_that_cannot_be_read_costs_itself(now, tmp_path):
    root = tmp_path / "adapters"
    plant(root, f"{PORT}state\t4: ACTIVE\n{PORT}counters/port_rcv_data\t25\n")
    (root / "mlx5_0/ports/1/counters/port_xmit_data").mkdir()
    (root / "mlx5_9").symlink_to(tmp_path / "gone")
    seen = source_of(root).read(now)
    (row,) = seen.others["link_reading"]
    assert (row.received_bytes, row.sent_bytes, row.state) == (100, None, "active")
    assert events_of(seen) == {"rejected_value/counters/port_xmit_data of a port is not readable, or no value": 1}


def test_a_node_without_adapters_is_a_failed_read_and_they_may_come_later(now, tmp_path):
    root = tmp_path / "adapters"
    source = source_of(root)
    (read,) = source.read(now).reads
    assert (read.ok, read.error) == (False, f"{root}: no such file or directory")
    root.mkdir()
    (read,) = source.read(now + timedelta(seconds=15)).reads
    assert (read.ok, read.error) == (False, "no port of a network adapter")
    plant(root, f"{PORT}state\t1: DOWN\n")
    (row,) = source.read(now + timedelta(seconds=30)).others["link_reading"]
    assert (row.state, row.sent_bytes) == ("down", None)


def test_ports_beyond_the_most_are_cut_off_and_told(now):
    files = {f"mlx5_{number}/ports/1/state": "4: ACTIVE" for number in range(MAX_PORTS + 3)}
    seen = sysfs.parse(files, now, reader())
    assert len(seen.others["link_reading"]) == MAX_PORTS
    assert events_of(seen) == {"too_many_series/ports beyond what a node may have": 3}


def test_the_nodes_name_is_the_settings_then_the_environments(monkeypatch, now, tmp_path):
    monkeypatch.setenv("NODE_NAME", "n7")
    plant(tmp_path, f"{PORT}state\t4: ACTIVE\n")
    named = [InfinibandSource(root=tmp_path), InfinibandSource(node="n8", root=tmp_path)]
    assert [source.read(now).others["link_reading"][0].node for source in named] == ["n7", "n8"]


@pytest.mark.parametrize("interval", [0, -1, 86_401, "15"])
def test_a_wrong_interval_is_refused(interval):
    with pytest.raises(ValueError, match="interval_seconds"):
        InfinibandSource(interval_seconds=interval)


def test_a_setting_stands_over_the_pages_name_of_its_node(target, recordings, now):
    target.page = (recordings / "node_exporter_two_ports.prom").read_bytes()
    named = NodeExporterSource(target.url, node="other").read(now)
    assert {row.node for row in named.others["link_reading"]} == {"other"}
    target.page = target.page.replace(b"node_uname_info", b"node_other_info")
    unnamed = NodeExporterSource(target.url).read(now)
    assert {row.node for row in unnamed.others["link_reading"]} == {"127.0.0.1"}


@pytest.mark.parametrize("content", [b"", b"<html>sign in</html>", b"node_load1 0.5\n"])
def test_a_page_without_a_port_is_a_failed_read(target, now, content):
    target.page = content
    seen = NodeExporterSource(target.url).read(now)
    assert [(read.ok, read.error) for read in seen.reads] == [(False, "no port of a network adapter")]
    assert "link_reading" not in seen.others
