"""Kinds of data quality that speak of more than one source: pairs, back-fills, renamed nodes, cards nobody holds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuledger.model import Allocation, Asset, Reading, SchedulerNode, SourceRead, Window, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse, quality

AT = datetime(2026, 3, 2, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
BATCHES = itertools.count()
Row = tuple[str, str, str, str, int]
WHOLE: dict[str, Any] = {"sm_active_ratio": 0.0, "power_watts": 80.0, "fb_used_bytes": 2**30}


@pytest.fixture
def house() -> Iterator[Warehouse]:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=2))) as opened:
        yield opened


def put(house: Warehouse, record: str, *rows: Any) -> None:
    assert not house.ingest(record, to_table(record, rows), f"b{next(BATCHES)}").rejected


def every_minute(count: int = 60, card: str = "a", *, start: datetime = AT, **values: Any) -> list[Reading]:
    said: dict[str, Any] = {"node": "n1", "source": "dcgm", "interval_seconds": 60.0, "gpu_util_ratio": 0.0}
    said |= WHOLE | values
    return [Reading(ts=start + i * MINUTE, gpu_uuid=f"GPU-{card}", **said) for i in range(count)]


def listed(house: Warehouse, end: datetime) -> list[Row]:
    """(kind, source, subject kind, subject, count) up to `end`."""
    rows = house.query("quality_list", kind="", from_at=AT, to_at=end, limit_count=1000).to_pylist()
    return sorted((row["kind"], row["source"], row["subject_kind"], row["subject"], row["count"]) for row in rows)


def built(house: Warehouse, hours: float = 1) -> list[Row]:
    """What the window's quality rows are, without a ledger."""
    with house.writing() as cursor:
        quality.build(cursor, AT, AT + hours * HOUR)
    return listed(house, AT + hours * HOUR)


def accounted(house: Warehouse) -> list[Row]:
    """The same after a build of the ledger."""
    house.build_ledger(Window(AT, AT + HOUR), until_at=AT + HOUR)
    return listed(house, AT + HOUR)


def values_of(house: Warehouse, kind: str) -> list[float | None]:
    rows = house.query("quality_list", kind=kind, from_at=AT, to_at=AT + 3 * HOUR, limit_count=100)
    return rows.column("value").to_pylist()


# Cards that work and that nobody holds.


def test_cards_that_work_for_nobody_are_minutes_and_cards_of_their_node(house: Warehouse) -> None:
    put(house, "reading", *every_minute(30, gpu_util_ratio=0.05), *every_minute(30, start=AT + HOUR / 2))
    put(house, "reading", *every_minute(60, "b", sm_active_ratio=0.9), *every_minute(60, "c", gpu_util_ratio=0.049))
    assert accounted(house) == [("active_unheld", "ledger", "node", "n1", 90)]
    assert values_of(house, "active_unheld") == [2]


def test_power_above_the_idle_band_is_work(house: Warehouse) -> None:
    # H100: 70 W idle, 700 W at most; the band ends at 70 + 0.15 x 630 = 164.5 W.
    for card, watts in (("a", 164.0), ("b", 165.0)):
        put(house, "reading", *every_minute(60, card, model="H100", power_watts=watts))
    assert accounted(house) == [("active_unheld", "ledger", "node", "n1", 60)]


def test_less_than_five_minutes_are_nothing_and_seldom_readings_stand_for_their_time(house: Warehouse) -> None:
    put(house, "reading", *every_minute(4, gpu_util_ratio=1.0), *every_minute(56, start=AT + 4 * MINUTE))
    seldom = [
        Reading(ts=AT + 20 * i * MINUTE, node="n2", gpu_uuid="GPU-s", source="dcgm", interval_seconds=1200.0,
                gpu_util_ratio=float(i == 1), **WHOLE)
        for i in range(3)
    ]  # fmt: skip
    put(house, "reading", *seldom)
    assert [row for row in accounted(house) if row[0] == "active_unheld"] == [
        ("active_unheld", "ledger", "node", "n2", 20)
    ]


def test_what_somebody_holds_is_not_for_nobody(house: Warehouse) -> None:
    put(house, "reading", *every_minute(sm_active_ratio=0.9), *every_minute(card="b", sm_active_ratio=0.9))
    put(house, "allocation", *[
        Allocation(
            allocation_id=card, workload_id="w", pod="p", node="n1", gpu_uuid=f"GPU-{card}", share=share,
            started_at=AT, ended_at=AT + length,
        )
        for card, share, length in (("a", 1.0, 40 * MINUTE), ("b", 0.5, HOUR))
    ])  # fmt: skip
    assert accounted(house) == [("active_unheld", "ledger", "node", "n1", 20)]


# Coverage: names of nodes, pairs, back-fills.


def test_a_node_that_is_renamed_within_the_hour_is_read_whole(house: Warehouse) -> None:
    put(house, "reading", *every_minute(30), *every_minute(30, start=AT + HOUR / 2, node="n1-renamed"))
    assert built(house) == []


def test_one_of_a_pair_that_stops_is_told_once_as_its_own_trouble(house: Warehouse) -> None:
    for card in "ab":
        put(house, "reading", *every_minute(120, card, source="remote_write/a"))
        put(house, "reading", *every_minute(30, card, source="remote_write/b"))
    assert built(house, 2) == [
        ("low_coverage", "remote_write/b", "target", "remote_write/b", 60),
        ("low_coverage", "remote_write/b", "target", "remote_write/b", 120),
        ("stale", "remote_write/b", "target", "remote_write/b", 2),
        ("stale", "remote_write/b", "target", "remote_write/b", 2),
    ]
    assert values_of(house, "low_coverage") == [0.0, 0.5]
    assert values_of(house, "stale") == [91 * 60, 31 * 60]


def test_what_both_of_a_pair_lack_is_the_card_s(house: Warehouse) -> None:
    put(house, "reading", *every_minute(30, source="remote_write/a"), *every_minute(20, source="remote_write/b"))
    assert {row[2:4] for row in built(house)} == {("gpu", "GPU-a")}


def test_a_back_fill_owes_nothing_after_its_last_chunk(house: Warehouse) -> None:
    put(house, "reading", *every_minute(75, source="prometheus"), *every_minute(10, "b", source="prometheus"))
    assert built(house, 3) == [
        ("low_coverage", "prometheus", "gpu", "GPU-b", 15),
        ("low_coverage", "prometheus", "gpu", "GPU-b", 50),
        ("stale", "prometheus", "gpu", "GPU-b", 1),
        ("stale", "prometheus", "gpu", "GPU-b", 1),
    ]


# What no source has shown.


def test_inferred_cards_that_moved_and_new_nodes_are_not_accused(house: Warehouse) -> None:
    put(house, "reading", *every_minute(70), *every_minute(5, start=AT + 70 * MINUTE, node="n1-renamed"))
    put(house, "reading", *every_minute(5, "new", start=AT + 70 * MINUTE, node="n9"))
    put(house, "scheduler_node", SchedulerNode(scheduler="k", node="n9", gpu_count=1, from_at=AT))
    assert accounted(house) == []


def test_a_declared_card_that_is_shown_under_another_name_of_its_node_was_seen(house: Warehouse) -> None:
    put(house, "reading", *every_minute(node="ip-10-0-0-1"))
    put(house, "asset", *[
        Asset(gpu_uuid=f"GPU-{card}", node=node, status="in_service", from_at=AT - HOUR)
        for card, node in (("a", "n1"), ("x", "n2"))
    ])  # fmt: skip
    assert built(house) == [("never_seen", "", "node", "n2", 1)]


def test_a_node_that_a_scheduler_lists_and_nothing_reads_is_named(house: Warehouse) -> None:
    put(house, "reading", *every_minute())
    put(house, "scheduler_node", *[
        SchedulerNode(scheduler="k", node=node, gpu_count=count, from_at=AT - HOUR)
        for node, count in (("n1", 8), ("n2", 8), ("cpu", 0))
    ])  # fmt: skip
    assert built(house) == [("never_seen", "scheduler", "node", "n2", 8)]


# Metrics and reads.


def test_a_metric_of_cards_with_refused_values_may_be_blank(house: Warehouse) -> None:
    lacking: dict[str, Any] = {"sm_active_ratio": None}
    put(
        house, "reading", *every_minute(invalid_count=1, quality_flags=1, **lacking), *every_minute(card="b", **lacking)
    )
    put(house, "reading", *every_minute(59, "c", **lacking))
    put(house, "reading", *every_minute(1, "c", start=AT + 59 * MINUTE, invalid_count=1, quality_flags=1, **lacking))
    assert built(house) == [
        ("blank_metric", "dcgm", "node", "n1", 1),
        ("missing_metric", "dcgm", "node", "n1", 2),
        ("rejected_value", "dcgm", "gpu", "GPU-a", 60),
        ("rejected_value", "dcgm", "gpu", "GPU-c", 1),
    ]


def test_a_gap_of_a_place_that_never_named_a_node_is_of_a_target(house: Warehouse) -> None:
    put(house, "reading", *every_minute())
    put(house, "source_read", *[
        SourceRead(ts=AT, node=node, source="dcgm", scope="device", ok=False, interval_seconds=60, error="HTTP 500")
        for node in ("n1", "127.0.0.1")
    ])  # fmt: skip
    assert built(house) == [("gap", "dcgm", "node", "n1", 1), ("gap", "dcgm", "target", "127.0.0.1", 1)]
