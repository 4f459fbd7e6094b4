"""The rates that stand apart from the ledger's: worked by hand on a few cards."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuledger.model import RECORDS, Window, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse

AT = datetime(2026, 3, 2, tzinfo=UTC)


def put(house: Warehouse, record: str, *rows: dict[str, Any]) -> None:
    result = house.ingest(record, to_table(record, [RECORDS[record].cls(**row) for row in rows]), record)
    assert not result.rejected


def fleet(house: Warehouse) -> Window:
    """Two nodes of 8: a has 5 cards held wholly, b has 1 card held by half. Free: 3 + 7.5."""
    cards = [(node, f"{node}{i}") for node in "ab" for i in range(8)]
    put(
        house,
        "asset",
        *({"gpu_uuid": card, "node": node, "status": "in_service", "from_at": AT} for node, card in cards),
    )
    shape = {"submitted_at": AT, "started_at": AT, "pod_count": 1, "gpu_milli": 1000, "cpu_milli": 0, "memory_mib": 0}
    put(house, "workload", {"workload_id": "w", "num_gpu": 2, "tenant": "t", "kind": "training", **shape})
    held = {"workload_id": "w", "pod": "p", "started_at": AT, "ready_at": AT}
    whole = [{"allocation_id": f"a{i}", "node": "a", "gpu_uuid": f"a{i}", "share": 1.0, **held} for i in range(5)]
    half = {"allocation_id": "b0", "node": "b", "gpu_uuid": "b0", "share": 0.5, **held}
    put(house, "allocation", *whole, half)
    reading = {"node": "a", "gpu_uuid": "a0", "source": "dcgm", "interval_seconds": 60.0, "gpu_util_ratio": 0.8}
    put(house, "reading", *({"ts": AT + timedelta(minutes=i), **reading} for i in range(60)))
    window = Window(AT, AT + timedelta(hours=1))
    assert house.build_ledger(window).violations == 0
    return window


def test_fragmentation_rate_by_shape() -> None:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=1))) as house:
        fleet(house)
        rows = house.query("fragmentation_rate", at=AT + timedelta(minutes=30)).to_pylist()
    assert [(row["gpu_count_wanted"], row["free_gpus"], row["slot_count"]) for row in rows] == [
        (2, 10.5, 4),
        (8, 10.5, 0),
    ]
    assert [row["fragmentation_ratio"] for row in rows] == pytest.approx([1 - 8 / 10.5, 1.0])


def test_job_utilization_says_what_it_covers() -> None:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=1))) as house:
        window = fleet(house)
        (row,) = house.query("job_utilization", from_at=window.from_at, to_at=window.to_at).to_pylist()
    assert row["held_gpu_hours"] == pytest.approx(5.5)
    assert row["gpu_util_ratio"] == pytest.approx(0.8)
    assert row["sm_active_ratio"] is None
    assert row["coverage_ratio"] == pytest.approx(1 / 5.5)


def test_an_inferred_inventory_says_so() -> None:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=1))) as house:
        put(house, "reading", {"ts": AT, "node": "n", "gpu_uuid": "g", "source": "s", "interval_seconds": 60.0})
        house.build_ledger(Window(AT, AT + timedelta(hours=1)))
        assert house.query("inventory_origin").to_pylist() == [{"origin": "inferred", "gpu_count": 1}]
        put(house, "asset", {"gpu_uuid": "g", "node": "n", "status": "in_service", "from_at": AT})
        house.build_ledger(Window(AT, AT + timedelta(hours=1)))
        assert house.query("inventory_origin").to_pylist() == [{"origin": "declared", "gpu_count": 1}]
