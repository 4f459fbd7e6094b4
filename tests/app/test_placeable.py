"""What is asked of fragmentation over HTTP: answers for a pool, and what is wrong with a question."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from gpuledger.app.fragmentation import fragmentation, placeable_gangs
from gpuledger.errors import BadInput
from gpuledger.model import RECORDS, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse

NOW = datetime(2026, 3, 2, tzinfo=UTC)
CLOCK = FakeClock(NOW)


@pytest.fixture(scope="module")
def house() -> Iterator[Warehouse]:
    """Two free nodes of two cards in one leaf of pool a."""
    began = NOW - timedelta(days=1)
    nodes = [{"node": name, "pool": "a", "gpu_count": 2, "leaf": "l", "from_at": began} for name in ("n0", "n1")]
    cards = [
        {
            "gpu_uuid": f"{node['node']}/{slot}",
            "node": node["node"],
            "pool": "a",
            "status": "in_service",
            "from_at": began,
        }
        for node in nodes
        for slot in range(2)
    ]
    with Warehouse.open(None, clock=CLOCK) as opened:
        for record, rows in (("node", nodes), ("asset", cards)):
            assert not opened.ingest(
                record, to_table(record, [RECORDS[record].cls(**row) for row in rows]), record
            ).rejected
        yield opened


def test_gangs_by_level_and_size(house: Warehouse) -> None:
    answer = placeable_gangs(house, CLOCK, {"gpus": "4, 2", "pool": "a"})
    slots = {(row["level"], row["gang_gpus"]): row["slot_count"] for row in answer["placeable"]}
    assert answer["at"] == NOW
    assert slots == {
        ("node", 2): 2,
        ("node", 4): 0,
        ("leaf", 2): 2,
        ("leaf", 4): 1,
        ("cluster", 2): 2,
        ("cluster", 4): 1,
    }


def test_free_and_index_at_an_instant(house: Warehouse) -> None:
    answer = fragmentation(house, CLOCK, {"at": "2026-03-01T12:00:00Z"})
    assert answer["free"] == [{"pool": "a", "name": "usable", "gpus": 4.0}]
    assert {row["fragmented_gpus"] for row in answer["index"]} == {None}


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"gpus": "0"}, "gpus"),
        ({"gpus": "two"}, "gpus"),
        ({"gpus": "1000001"}, "gpus"),
        ({"gpus": ",".join(["1"] * 33)}, "gpus"),
        ({"pool": "b"}, "pool"),
        ({"at": "noon"}, "at"),
    ],
)
def test_a_wrong_question_is_named(house: Warehouse, asked: dict[str, str], field: str) -> None:
    with pytest.raises(BadInput) as refused:
        placeable_gangs(house, CLOCK, asked)
    assert refused.value.field == field


def test_a_level_that_is_none(house: Warehouse) -> None:
    with pytest.raises(BadInput, match="gang_level"):
        fragmentation(house, CLOCK, {"gang_level": "rack"})
