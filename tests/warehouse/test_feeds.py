"""How much of a minute each source saw, where it does not say how often it reads, and which of several counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from gpuledger.model import RECORDS, Window, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse

AT = datetime(2026, 3, 2, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)


class House:
    """A card that one job holds, and what sources read of it. Times are seconds."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse
        self._batches = count()
        row = {"gpu_uuid": "g", "node": "n", "model": "H100"}
        self.put("asset", [{**row, "status": "in_service", "from_at": AT}])
        held = {"allocation_id": "a", "workload_id": "j", "pod": "p", "node": "n", "gpu_uuid": "g", "share": 1.0}
        self.put("allocation", [{**held, "started_at": AT - HOUR, "ready_at": AT - HOUR}])

    def put(self, record: str, rows: Iterable[dict[str, Any]]) -> None:
        table = to_table(record, [RECORDS[record].cls(**row) for row in rows])
        assert not self.warehouse.ingest(record, table, str(next(self._batches))).rejected

    def read(self, seconds: Iterable[float], source: str = "remote_write", **values: Any) -> None:
        row = {"node": "n", "gpu_uuid": "g", "source": source, "gpu_util_ratio": 0.9, "sm_active_ratio": 0.8} | values
        self.put("reading", [{"ts": AT + timedelta(seconds=second), **row} for second in seconds])

    def hours(self, hours: int = 1) -> dict[str, float]:
        assert self.warehouse.build_ledger(Window(AT, AT + hours * HOUR), until_at=AT + hours * HOUR).violations == 0
        with self.warehouse.reading() as cursor:
            return dict(cursor.execute("select state, sum(gpu_hours) from state_span group by state").fetchall())


@pytest.fixture
def house() -> Iterator[House]:
    with Warehouse.open(None, clock=FakeClock(AT + 100 * HOUR)) as opened:
        yield House(opened)


def every(step: float, *, begin: float = 0, end: float = 3600) -> list[float]:
    return [begin + number * step for number in range(int((end - begin) / step))]


@pytest.mark.parametrize(("step", "offset"), [(15, 3), (15, 7.5), (30, 1), (60, 10)])
def test_two_exporters_that_nothing_tells_apart_see_the_whole_hour(house: House, step: float, offset: float) -> None:
    house.read([*every(step), *every(step, begin=offset)])
    assert house.hours() == {"alloc_productive": pytest.approx(1.0)}


def test_a_block_without_reads_is_not_seen(house: House) -> None:
    house.read(every(15, end=1200))
    house.read(every(15, begin=1800))
    assert house.hours() == {"alloc_productive": pytest.approx(5 / 6), "alloc_unknown": pytest.approx(1 / 6)}


def test_after_a_silence_a_single_reading_stands_for_five_minutes_at_most(house: House) -> None:
    house.read(every(15))
    house.read([2.5 * 3600])
    assert house.hours(3) == {"alloc_productive": pytest.approx(1.0), "alloc_unknown": pytest.approx(2.0)}


@pytest.mark.parametrize("steps", [(300, 15), (15, 300), (60, 300, 15)])
def test_an_interval_that_changes_changes_no_other_hour(house: House, steps: tuple[float, ...]) -> None:
    for number, step in enumerate(steps):
        house.read(every(step, begin=number * 3600, end=(number + 1) * 3600))
    assert house.hours(len(steps)) == {"alloc_productive": pytest.approx(len(steps))}


@pytest.mark.parametrize("interval", [15.0, None])
def test_the_whole_replica_counts_not_the_first_by_name(house: House, interval: float | None) -> None:
    house.read(every(60), "remote_write/a", interval_seconds=interval)
    house.read(every(15, begin=2), "remote_write/b", interval_seconds=interval)
    assert house.hours() == {"alloc_productive": pytest.approx(1.0)}


def test_a_coarse_back_fill_does_not_hide_what_was_read_often(house: House) -> None:
    """31 idle minutes of an hour: five-minute means would spread them over 35."""
    busy, idle = every(15, end=29 * 60), every(15, begin=29 * 60)
    house.read(busy, interval_seconds=15.0)
    house.read(idle, interval_seconds=15.0, sm_active_ratio=0.0, gpu_util_ratio=0.0)
    house.read(every(300), "prometheus", interval_seconds=300.0)
    assert house.hours() == {
        "alloc_productive": pytest.approx(29 / 60),
        "alloc_idle": pytest.approx(31 / 60),
    }


@pytest.mark.parametrize("interval", [15.0, 60.0, 300.0])
def test_a_list_of_processes_stands_for_its_interval(house: House, interval: float) -> None:
    row = {"node": "n", "source": "jobs", "scope": "process", "ok": True, "interval_seconds": interval}
    house.put("source_read", [{"ts": AT + timedelta(seconds=second), **row} for second in every(interval)])
    assert house.hours() == {"alloc_idle": pytest.approx(1.0)}
