"""What each held share did in an hour: minutes counted and means worked by hand."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuledger.model import RECORDS, Window, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse

AT = datetime(2026, 3, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
GIB = 2**30
H100 = "NVIDIA H100 80GB HBM3"


@pytest.fixture
def house() -> Iterator[Warehouse]:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=1))) as opened:
        yield opened


def put(house: Warehouse, record: str, *rows: dict[str, Any]) -> None:
    result = house.ingest(record, to_table(record, [RECORDS[record].cls(**row) for row in rows]), record)
    assert not result.rejected


def held(**changed: Any) -> dict[str, Any]:
    whole = {"allocation_id": "a", "workload_id": "w", "pod": "p", "node": "n", "gpu_uuid": "g", "share": 1.0}
    return {**whole, "started_at": AT, "ready_at": AT - timedelta(hours=1), **changed}


def readings(begin: int, end: int, **values: Any) -> list[dict[str, Any]]:
    common = {"node": "n", "gpu_uuid": "g", "source": "dcgm", "interval_seconds": 60.0, "model": H100}
    return [{"ts": AT + i * MINUTE, **common, **values} for i in range(begin, end)]


def hours(house: Warehouse, count: int = 1) -> list[dict[str, Any]]:
    window = Window(AT, AT + timedelta(hours=count))
    assert house.build_ledger(window, until_at=window.to_at).violations == 0
    with house.reading() as cursor:
        return [dict(row) for row in cursor.sql("from activity_hour order by all").to_arrow_table().to_pylist()]


WORKING = {
    "gpu_util_ratio": 1.0,
    "sm_active_ratio": 0.6,
    "gr_engine_active_ratio": 0.9,
    "tensor_active_ratio": 0.4,
    "dram_active_ratio": 0.3,
    "fb_used_bytes": 20 * GIB,
    "fb_total_bytes": 80 * GIB,
    "power_watts": 600.0,
    "sm_clock_hertz": 1.8e9,
    "pcie_tx_bytes_per_second": 1e9,
    "pcie_rx_bytes_per_second": 2e9,
    "nvlink_bytes_per_second": 5e9,
    "throttle_reasons": 0,
}
WAITING = {**WORKING, "sm_active_ratio": 0.0, "power_watts": 300.0, "pcie_tx_bytes_per_second": None}
RESTING = {
    **WORKING,
    "gpu_util_ratio": 0.0,
    "sm_active_ratio": 0.0,
    "tensor_active_ratio": 0.0,
    "power_watts": 100.0,
    "fb_used_bytes": 60 * GIB,
    "throttle_reasons": 1,
}


def test_an_hour_of_twenty_minutes_each(house: Warehouse) -> None:
    """20 min at work, 10 min at a counter of zero, 20 min idle, 10 min unseen."""
    put(house, "allocation", held())
    put(house, "reading", *readings(0, 20, **WORKING), *readings(20, 30, **WAITING), *readings(30, 50, **RESTING))
    (row,) = hours(house)
    named = {key: row[key] for key in ("gpu_uuid", "slice_id", "allocation_id", "workload_id", "node", "share")}
    assert named == {
        "gpu_uuid": "g", "slice_id": "", "allocation_id": "a", "workload_id": "w", "node": "n", "share": 1.0,
    }  # fmt: skip
    counted = {key: value for key, value in row.items() if key.endswith("_minutes")}
    assert counted == {
        "held_minutes": 60.0,
        "observed_minutes": 50.0,
        "active_minutes": 30.0,
        "idle_minutes": 20.0,
        "zero_minutes": 10.0,
        "phase_minutes": 0.0,
        "throttled_minutes": 0.0,
    }
    assert row["sm_active_ratio"] == pytest.approx((20 * 0.6 + 10 * 0.0) / 30)
    assert row["tensor_active_ratio"] == pytest.approx(0.4)
    assert row["core_active_ratio"] is None
    assert row["power_watts"] == pytest.approx((20 * 600 + 10 * 300 + 20 * 100) / 50)
    assert row["pcie_bytes_per_second"] == pytest.approx((20 * 3e9 + 10 * 2e9) / 30)
    assert row["nvlink_bytes_per_second"] == pytest.approx(5e9)
    assert row["sm_clock_hertz"] == pytest.approx(1.8e9)
    assert (row["fb_used_bytes"], row["fb_total_bytes"]) == (60 * GIB, 80 * GIB)
    assert row["coverage_ratio"] == pytest.approx(50 / 60)
    assert row["is_shared"] is False


@pytest.mark.parametrize(
    ("reasons", "throttled"),
    [(0, 0.0), (0x1, 0.0), (0x4, 0.0), (0x8, 0.0), (0x20, 0.0), (0x40, 6.0), (0x84, 6.0), (0x3F, 0.0)],
)
def test_heat_and_power_brakes_throttle_and_a_power_cap_does_not(
    house: Warehouse, reasons: int, throttled: float
) -> None:
    put(house, "allocation", held())
    put(
        house,
        "reading",
        *readings(0, 54, **WORKING),
        *readings(54, 60, **{**WORKING, "throttle_reasons": reasons}),
    )
    assert [row["throttled_minutes"] for row in hours(house)] == [throttled]


def test_a_counter_of_five_percent_is_not_zero(house: Warehouse) -> None:
    put(house, "allocation", held())
    put(
        house,
        "reading",
        *readings(0, 30, **{**WORKING, "sm_active_ratio": 0.05}),
        *readings(30, 60, **{**WORKING, "sm_active_ratio": 0.049}),
    )
    (row,) = hours(house)
    assert (row["active_minutes"], row["zero_minutes"]) == (60.0, 30.0)


def test_shares_of_one_card_are_told_apart(house: Warehouse) -> None:
    """Two halves until 00:30, then one of them alone: its hour has 60 held minutes, the other's 30."""
    put(
        house,
        "allocation",
        held(share=0.5),
        held(share=0.5, allocation_id="b", workload_id="v", ended_at=AT + 30 * MINUTE),
    )
    put(house, "reading", *readings(0, 60, **WORKING))
    first, second = hours(house)
    assert (first["allocation_id"], first["held_minutes"], first["share"]) == ("a", 60.0, 0.5)
    assert (second["allocation_id"], second["held_minutes"], second["share"]) == ("b", 30.0, 0.5)
    assert first["is_shared"]
    assert second["is_shared"]


def test_an_hour_is_written_once_however_often_it_is_built(house: Warehouse) -> None:
    put(house, "allocation", held())
    put(house, "reading", *readings(0, 120, **WORKING))
    assert hours(house, 2) == hours(house, 2)
    assert [row["hour_at"] for row in hours(house, 2)] == [AT, AT + timedelta(hours=1)]


def test_what_nobody_saw_has_minutes_and_no_means(house: Warehouse) -> None:
    put(house, "allocation", held())
    (row,) = hours(house)
    assert (row["held_minutes"], row["observed_minutes"], row["coverage_ratio"]) == (60.0, 0.0, 0.0)
    assert row["sm_active_ratio"] is None
    assert row["power_watts"] is None
