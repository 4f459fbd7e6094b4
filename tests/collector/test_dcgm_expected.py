"""Every published page of dcgm-exporter against an expected file, which was written by reading the page.

An expected file (`tests/expected/dcgm`) names reads by node, rows with all their values and no others, holdings, and
the deprecated names that the page uses. It holds facts, no copy of the page.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from collector.dcgm.fields import RENAMED
from collector.sources.dcgm import parse
from gpuledger.ports import Observation
from tests.collector.page_rows import holding_of, row_of

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
EXPECTED = Path(__file__).resolve().parents[1] / "expected" / "dcgm"
NAMES = sorted(path.stem for path in EXPECTED.glob("*.yaml"))


def expected_of(name: str) -> dict[str, Any]:
    told: dict[str, Any] = yaml.safe_load((EXPECTED / f"{name}.yaml").read_text())
    if "columns" in told:
        told["rows"] = sorted(
            (
                {"gpu": gpu, "node": told["node"], "model": told["model"], "values": _at(told["columns"], position)}
                for position, gpu in enumerate(told["cards"])
            ),
            key=lambda row: row["gpu"],
        )
    return told


def _at(columns: dict[str, dict[str, Any]], position: int) -> dict[str, float]:
    return {
        column: how["written"][position] * how.get("times", 1) / how.get("divided_by", 1)
        for column, how in columns.items()
    }


def renamed(observation: Observation) -> list[str]:
    events = [event for event in observation.others.get("quality_event", ()) if event.kind == "renamed_metric"]
    assert all(event.detail.partition(" -> ")[2] == RENAMED[old(event.detail).upper()] for event in events)
    return sorted(old(event.detail) for event in events)


def old(detail: str) -> str:
    return detail.partition(" -> ")[0]


def test_every_published_page_has_an_expected_file(shared):
    assert [path.stem for path in sorted((shared / "fixtures/exposition").glob("dcgm_*.prom"))] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_published_page_gives_exactly_the_expected_rows(shared, name):
    told = expected_of(name)
    observation = parse((shared / "fixtures/exposition" / f"{name}.prom").read_bytes(), NOW)
    assert [row_of(reading) for reading in observation.readings] == told["rows"]
    assert [holding_of(holding) for holding in observation.holdings] == told["holdings"]
    assert {
        read.node: {"devices": read.device_count} | ({"skipped": read.skipped_lines} if read.skipped_lines else {})
        for read in observation.reads
    } == told["reads"]
    assert renamed(observation) == told["renamed"]
    assert {reading.ts for reading in observation.readings} == {NOW}


def test_the_negative_page_loses_its_bad_lines_with_their_reasons(shared):
    page = (shared / "fixtures/exposition/dcgm_bad_unescaped_label.prom").read_bytes()
    events = [event for event in parse(page, NOW).others["quality_event"] if event.kind == "refused_line"]
    assert sum(event.count for event in events) == 2
    assert len({event.detail for event in events}) == 2
    assert {(event.subject_kind, event.subject) for event in events} == {("target", "unknown")}
