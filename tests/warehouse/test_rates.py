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


SM = ("effective_utilization",)
UTIL = ("gpu_util_of_available", "gpu_util_of_inventory")
ANY = ("ungraded_share", "held_idle_rate")


def rates(*, is_held: bool, **read: float) -> dict[str, float | None]:
    """Two cards, of which one is held, or none; it is read in half an hour of one."""
    hour = Window(AT, AT + timedelta(hours=1))
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=1))) as house:
        put(
            house,
            "asset",
            *({"gpu_uuid": card, "node": "n", "status": "in_service", "from_at": AT} for card in ("g", "h")),
        )
        if is_held:
            put(house, "allocation", {
                "allocation_id": "x", "workload_id": "w", "pod": "p", "node": "n", "gpu_uuid": "g", "share": 1.0,
                "started_at": AT, "ready_at": AT,
            })  # fmt: skip
        if read:
            reading = {"node": "n", "gpu_uuid": "g", "source": "dcgm", "interval_seconds": 60.0, **read}
            put(house, "reading", *({"ts": AT + timedelta(minutes=i), **reading} for i in range(30)))
        house.build_ledger(hour)
        rows = house.query("ledger_rates", from_at=hour.from_at, to_at=hour.to_at).to_pylist()
    missing = {row["name"] for row in rows if row["numerator_gpu_hours"] is None}
    assert missing == {row["name"] for row in rows if row["value"] is None and row["denominator_gpu_hours"] > 0}
    return {row["name"]: row["value"] for row in rows}


def test_a_held_card_of_which_nothing_was_read_has_no_utilization() -> None:
    found = rates(is_held=True)
    assert {found[name] for name in (*UTIL, *SM, *ANY)} == {None}
    assert (found["allocation_rate"], found["coverage"]) == (0.5, 0)


def test_what_was_read_in_part_counts_against_the_whole() -> None:
    found = rates(is_held=True, gpu_util_ratio=0.8)
    assert [found[name] for name in UTIL] == pytest.approx([0.2, 0.2])  # 0.8 x 0.5 GPU-h of 2
    assert (found["effective_utilization"], found["held_idle_rate"]) == (None, 0)
    assert found["ungraded_share"] == pytest.approx(0.25)
    found = rates(is_held=True, sm_active_ratio=0.8)
    assert found["effective_utilization"] == pytest.approx(0.25)
    assert [found[name] for name in UTIL] == [None, None]


def test_a_fleet_that_nobody_holds_is_not_utilized() -> None:
    found = rates(is_held=False)
    assert [found[name] for name in (*UTIL, *SM)] == [0, 0, 0]
    assert found["held_idle_rate"] is None
