"""Fragmentation over time: a row for everything at each hour, the past as it was then, stored and read back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from analyzers.fragmentation.hours import SCHEMA, snapshot_hours
from analyzers.rules.fragmentation import Fragmentation
from gpuledger.model import Window
from warehouse import Warehouse
from warehouse.fragmentation import save_hours

AT = datetime(2026, 3, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = Window(AT, AT + timedelta(hours=4))


@pytest.fixture
def history(
    house: Warehouse, put: Callable[..., None], put_node: Callable[..., None], put_classes: Callable[..., None]
) -> Warehouse:
    """Two nodes of two cards in one leaf; a card is held in the second and third hour; then pairs are waited for."""
    for name in ("a", "b"):
        put_node(name, [1000, 1000], at=AT, leaf="l1")
    put_classes([(0, 1000, 2, None, 1)], at=AT)
    put(
        "allocation",
        {
            "allocation_id": "x",
            "workload_id": "w",
            "pod": "p",
            "node": "a",
            "gpu_uuid": "a/gpu0",
            "share": 1.0,
            "started_at": AT + HOUR,
            "ended_at": AT + 3 * HOUR,
        },
    )
    shape = {"pod_count": 1, "num_gpu": 2, "gpu_milli": 1000, "cpu_milli": 0, "memory_mib": 0}
    put("workload", {"workload_id": "pair", "submitted_at": AT + 2 * HOUR, "started_at": AT + 3 * HOUR, **shape})
    assert house.build_ledger(DAY, until_at=DAY.to_at).violations == 0
    return house


def _values(rows: list[dict[str, Any]], **which: Any) -> list[tuple[int, Any]]:
    return [
        (int((row["hour_at"] - AT) / HOUR), row["value"])
        for row in rows
        if all(row[name] == value for name, value in which.items())
    ]


def test_every_hour_says_what_was_free_then(history: Warehouse) -> None:
    table = snapshot_hours(history, DAY)
    assert table.schema == SCHEMA
    rows = table.to_pylist()
    assert _values(rows, measure="free", name="usable") == [(0, 4.0), (1, 2.0), (2, 2.0), (3, 4.0)]
    assert _values(rows, measure="free", name="insufficient_whole") == [(1, 1.0), (2, 1.0)]
    assert _values(rows, measure="fgd_typical", name="demand") == [(0, 0.0), (1, 1.0), (2, 1.0), (3, 0.0)]
    assert _values(rows, measure="fgd_pending", name="demand") == [(0, None), (1, None), (2, 1.0), (3, None)]
    assert _values(rows, measure="slots", name="leaf", gang_gpus=4) == [(0, 1), (1, 0), (2, 0), (3, 1)]
    assert _values(rows, measure="slots", name="node", gang_gpus=2) == [(0, 2), (1, 1), (2, 1), (3, 2)]
    assert _values(rows, measure="largest_gang", name="leaf") == [(0, 4), (1, 2), (2, 2), (3, 4)]
    assert _values(rows, measure="total", name="in_service") == [(hour, 4.0) for hour in range(4)]


def test_parts_of_a_window_give_what_the_whole_gives(history: Warehouse) -> None:
    halves = [Window(AT, AT + 90 * timedelta(minutes=1)), Window(AT + 90 * timedelta(minutes=1), DAY.to_at)]
    parts = [row for half in halves for row in snapshot_hours(history, half).to_pylist()]
    assert parts == snapshot_hours(history, DAY).to_pylist()


def test_what_the_ledger_strands_is_what_the_series_shows(history: Warehouse) -> None:
    rows = snapshot_hours(history, DAY).to_pylist()
    shown = sum(value for _, value in _values(rows, measure="free", name="insufficient_whole"))
    totals = Fragmentation().run(history, DAY, {}).totals["stranded_by_cause"]
    assert shown == totals["insufficient_whole"]["gpu_hours"] == 2.0


def test_hours_are_stored_once_and_read_by_name(history: Warehouse) -> None:
    table = snapshot_hours(history, DAY)
    assert save_hours(history, DAY, table) == save_hours(history, DAY, table) == table.num_rows
    later = Window(AT + HOUR, AT + 2 * HOUR)
    save_hours(history, later, snapshot_hours(history, later))
    span = {"from_at": DAY.from_at, "to_at": DAY.to_at, "pool": ""}
    free = history.query("fragmentation_series", measure="free", **span).to_pylist()
    assert _values(free, name="usable") == [(0, 4.0), (1, 2.0), (2, 2.0), (3, 4.0)]
    assert history.query("fragmentation_series", measure="free", **{**span, "pool": "elsewhere"}).num_rows == 0
    slots = history.query("fragmentation_slots_series", topology_level="leaf", **span).to_pylist()
    assert [row["slot_count"] for row in slots if row["gang_gpus"] == 4] == [1, 0, 0, 1]
    extent = history.query("fragmentation_extent").to_pylist()[0]
    assert (extent["from_at"], extent["to_at"], extent["hour_count"]) == (AT, DAY.to_at, 4)


def test_an_hour_without_cards_has_no_rows(house: Warehouse) -> None:
    assert snapshot_hours(house, DAY).num_rows == 0
