"""What work says of itself: a hang is a time without a step, and a quiet phase is no idleness. Worked by hand."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from analyzers.rules.idle_allocation import IdleAllocation
from analyzers.rules.stalled_allocation import StalledAllocation
from gpuledger.model import RECORDS, Window, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse

AT = datetime(2026, 3, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
BUSY = {"gpu_util_ratio": 1.0, "tensor_active_ratio": 0.3, "sm_active_ratio": 0.6, "power_watts": 600.0}
QUIET = {"gpu_util_ratio": 0.0, "tensor_active_ratio": 0.0, "sm_active_ratio": 0.0, "power_watts": 80.0}
HANG = Path(__file__).resolve().parents[3] / "shared" / "problems" / "101-hang-at-100.csv"


@pytest.fixture
def house() -> Iterator[Warehouse]:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=2))) as opened:
        yield opened


def put(house: Warehouse, record: str, *rows: dict[str, Any]) -> None:
    result = house.ingest(record, to_table(record, [RECORDS[record].cls(**row) for row in rows]), record)
    assert not result.rejected, result.rejected


def job(house: Warehouse, cards: int, minutes: int, *, kind: str = "training", ready: int = -60) -> None:
    """One job of `cards` whole cards, a pod each, that runs for `minutes`."""
    span = {"started_at": AT - 60 * MINUTE, "ended_at": AT + minutes * MINUTE}
    shape = {"num_gpu": 1, "gpu_milli": 1000, "cpu_milli": 0, "memory_mib": 0}
    put(house, "workload", {"workload_id": "j", "kind": kind, "submitted_at": AT, "pod_count": cards, **shape, **span})
    hold = {"workload_id": "j", "node": "n", "share": 1.0, "ready_at": AT + ready * MINUTE, **span}
    put(
        house,
        "allocation",
        *({**hold, "allocation_id": f"a{i}", "pod": f"p{i}", "gpu_uuid": f"g{i}"} for i in range(cards)),
    )


def read(cards: range, begin: int, end: int, values: dict[str, Any]) -> list[dict[str, Any]]:
    common = {"node": "n", "source": "dcgm", "interval_seconds": 60.0, "model": "NVIDIA H100 80GB HBM3"}
    return [
        {"ts": AT + minute * MINUTE, "gpu_uuid": f"g{card}", **common, **values}
        for card in cards
        for minute in range(begin, end)
    ]


def steps(*ended: int) -> list[dict[str, Any]]:
    return [{"workload_id": "j", "rank": 0, "ts": AT + minute * MINUTE, "step": i} for i, minute in enumerate(ended)]


def spans(house: Warehouse, minutes: int) -> list[tuple[str, str, int, int]]:
    """(state, cause, first minute, end) of card g0, neighbouring spans of one state and cause joined."""
    window = Window(AT, AT + minutes * MINUTE)
    assert house.build_ledger(window, until_at=window.to_at).violations == 0
    with house.reading() as cursor:
        rows = cursor.sql(
            "select state, cause, from_at, until_at from state_span where gpu_uuid = 'g0' order by from_at"
        ).fetchall()
    joined: list[tuple[str, str, int, int]] = []
    for state, cause, from_at, until_at in rows:
        begin, end = round((from_at - AT) / MINUTE), round((until_at - AT) / MINUTE)
        if joined and joined[-1][:2] == (state, cause) and joined[-1][3] == begin:
            joined[-1] = (state, cause, joined[-1][2], end)
        else:
            joined.append((state, cause, begin, end))
    return joined


def test_a_standstill_begins_at_the_last_step(house: Warehouse) -> None:
    """Steps each two minutes until minute 20, the next at 40: 20 minutes of a card that reads 100 %."""
    job(house, 1, 60)
    put(house, "reading", *read(range(1), 0, 60, BUSY))
    put(house, "job_step", *steps(*range(0, 21, 2), *range(40, 60, 2)))
    assert spans(house, 60) == [
        ("alloc_productive", "", 0, 20),
        ("alloc_stalled", "", 20, 40),
        ("alloc_productive", "", 40, 60),
    ]
    (found,) = StalledAllocation().run(house, Window(AT, AT + 60 * MINUTE), {}).findings
    assert found.gpu_hours_wasted == pytest.approx(20 / 60)
    assert found.cause_code == "no_progress"
    assert IdleAllocation().run(house, Window(AT, AT + 60 * MINUTE), {}).findings == []


@pytest.mark.parametrize(("gap", "is_stalled"), [(9, False), (10, True), (11, True)])
def test_ten_minutes_without_a_step(house: Warehouse, gap: int, is_stalled: bool) -> None:
    job(house, 1, 60)
    put(house, "reading", *read(range(1), 0, 60, BUSY))
    put(house, "job_step", *steps(*range(21), *range(20 + gap, 60)))
    assert any(state == "alloc_stalled" for state, *_ in spans(house, 60)) is is_stalled


@pytest.mark.parametrize(("gap", "is_stalled"), [(35, False), (36, True)])
def test_long_steps_are_no_standstill(house: Warehouse, gap: int, is_stalled: bool) -> None:
    """Steps of 12 minutes: nothing below three of them is a standstill."""
    job(house, 1, 100 + gap)
    put(house, "reading", *read(range(1), 0, 100 + gap, BUSY))
    put(house, "job_step", *steps(0, 12, 24, 36, 48, 60, 72, 72 + gap, 84 + gap, 96 + gap))
    assert any(state == "alloc_stalled" for state, *_ in spans(house, 180)) is is_stalled


def test_a_standstill_ends_with_the_job(house: Warehouse) -> None:
    job(house, 1, 50)
    put(house, "reading", *read(range(1), 0, 60, BUSY))
    put(house, "job_step", *steps(*range(0, 31, 2)))
    assert ("alloc_stalled", "", 30, 50) in spans(house, 60)


def test_one_rank_that_is_not_busy_is_no_standstill(house: Warehouse) -> None:
    job(house, 2, 60)
    put(house, "reading", *read(range(1), 0, 60, BUSY), *read(range(1, 2), 0, 60, {**BUSY, "gpu_util_ratio": 0.5}))
    put(house, "job_step", *steps(*range(0, 21, 2), *range(40, 60, 2)))
    assert all(state != "alloc_stalled" for state, *_ in spans(house, 60))


def hang(house: Warehouse, rows: list[dict[str, str]]) -> None:
    """Four ranks whose counters stay busy while the step stands still, from rows as problem 101 has them."""
    begin = datetime.fromisoformat(rows[0]["ts"])
    end = datetime.fromisoformat(rows[-1]["ts"])
    span = {"started_at": begin, "ready_at": begin, "ended_at": end}
    hold = {"workload_id": "big-1", "pod": "p", "node": "n", "share": 1.0, **span}
    put(house, "allocation", *({**hold, "allocation_id": f"a{i}", "gpu_uuid": f"g{i}"} for i in range(4)))
    common = {"node": "n", "source": "dcgm", "interval_seconds": 120.0, "model": "NVIDIA GB200"}
    reading, told = [], []
    for row in rows:
        ts, rank = datetime.fromisoformat(row["ts"]), int(row["rank"])
        values = {"gpu_util_ratio": int(row["gpu_util"]) / 100, "tensor_active_ratio": float(row["tensor_active"])}
        reading.append({"ts": ts, "gpu_uuid": f"g{rank}", **common, **values, "power_watts": float(row["power_w"])})
        told.append({"ts": ts, "workload_id": "big-1", "rank": rank, "step": int(row["step"])})
    put(house, "reading", *reading)
    put(house, "job_step", *told)


def told_of_a_hang() -> list[dict[str, str]]:
    """A step each two minutes until 183 at 22:34; then nothing for 32 minutes, at 100 % on all ranks."""
    start, rows = datetime(2026, 3, 2, 22, 28, tzinfo=UTC), []
    for number in range(20):
        step, is_stuck = min(180 + number, 183), number > 3
        values = {"gpu_util": "100" if is_stuck else "98", "tensor_active": "0.0" if is_stuck else "0.32"}
        for rank in range(4):
            ts = (start + 2 * number * MINUTE).isoformat()
            rows.append(
                {"ts": ts, "rank": str(rank), "step": str(step), "power_w": "260" if is_stuck else "984", **values}
            )
    return rows


@pytest.mark.parametrize("is_public", [True, False])
def test_101_a_hung_collective_reads_full_and_is_a_standstill(house: Warehouse, is_public: bool) -> None:
    if is_public and not HANG.is_file():
        pytest.skip("../shared is absent: this checkout has no public problem inputs beside it")
    rows = list(csv.DictReader(HANG.read_text(encoding="utf-8").splitlines())) if is_public else told_of_a_hang()
    hang(house, rows)
    day = datetime(2026, 3, 2, tzinfo=UTC)
    window = Window(day + timedelta(hours=22), day + timedelta(hours=24))
    # Told at 22:44, ten minutes after the last step, and not before.
    for minute, is_stalled in ((43, False), (44, True)):
        now = day + timedelta(hours=22, minutes=minute)
        house.build_ledger(Window(window.from_at, now), until_at=now)
        with house.reading() as cursor:
            said = cursor.execute("select count(*) from state_span where state = 'alloc_stalled'").fetchone()
        assert said is not None
        assert (said[0] > 0) is is_stalled
    assert house.build_ledger(window).violations == 0
    result = StalledAllocation().run(house, window, {})
    (found,) = result.findings
    assert found.gpu_hours_wasted == pytest.approx(4 * 32 / 60)
    assert (found.window_start, found.window_end) == (window.from_at + 34 * MINUTE, window.from_at + 66 * MINUTE)
    assert IdleAllocation().run(house, window, {}).findings == []


@pytest.mark.parametrize("phase", ["checkpoint", "evaluation", "compile", "rollout", "update"])
def test_a_quiet_phase_is_no_idleness(house: Warehouse, phase: str) -> None:
    job(house, 1, 120)
    put(house, "reading", *read(range(1), 0, 30, BUSY), *read(range(1), 30, 75, QUIET), *read(range(1), 75, 120, BUSY))
    told = {"workload_id": "j", "phase": phase, "from_at": AT + 30 * MINUTE, "until_at": AT + 75 * MINUTE}
    put(house, "workload_phase", told)
    assert spans(house, 120) == [
        ("alloc_productive", "", 0, 30),
        ("alloc_low", phase, 30, 75),
        ("alloc_productive", "", 75, 120),
    ]
    assert IdleAllocation().run(house, Window(AT, AT + 120 * MINUTE), {}).findings == []


@pytest.mark.parametrize("phase", ["train", "serve", "other"])
def test_other_phases_excuse_nothing(house: Warehouse, phase: str) -> None:
    job(house, 1, 60)
    put(house, "reading", *read(range(1), 0, 60, QUIET))
    put(house, "workload_phase", {"workload_id": "j", "phase": phase, "from_at": AT, "until_at": AT + 60 * MINUTE})
    assert spans(house, 60) == [("alloc_idle", "", 0, 60)]


@pytest.mark.parametrize("until", [None, 300])
def test_a_phase_excuses_two_hours_at_most(house: Warehouse, until: int | None) -> None:
    """Never closed, or closed after five hours: what comes after two is judged as usual."""
    job(house, 1, 240)
    put(house, "reading", *read(range(1), 0, 240, QUIET))
    end = None if until is None else AT + until * MINUTE
    put(house, "workload_phase", {"workload_id": "j", "phase": "checkpoint", "from_at": AT, "until_at": end})
    assert spans(house, 240) == [("alloc_low", "checkpoint", 0, 120), ("alloc_idle", "", 120, 240)]


def test_what_is_left_beside_a_phase_is_too_short_to_be_idle(house: Warehouse) -> None:
    """Quiet from 0 to 100; the phase takes 29 to 71, which leaves twice 29 minutes: low, not idle."""
    job(house, 1, 120)
    put(house, "reading", *read(range(1), 0, 100, QUIET), *read(range(1), 100, 120, BUSY))
    told = {"workload_id": "j", "phase": "evaluation", "from_at": AT + 29 * MINUTE, "until_at": AT + 71 * MINUTE}
    put(house, "workload_phase", told)
    found = spans(house, 120)
    assert [span for span in found if span[1]] == [("alloc_low", "evaluation", 29, 71)]
    assert [span for span in found if span[0] == "alloc_idle"] == []


def test_a_phase_of_one_pod_excuses_that_pod(house: Warehouse) -> None:
    job(house, 2, 60)
    put(house, "reading", *read(range(2), 0, 60, QUIET))
    told = {"workload_id": "j", "phase": "rollout", "from_at": AT, "until_at": AT + 60 * MINUTE}
    put(house, "workload_phase", {**told, "pod": "p0"})
    assert spans(house, 60) == [("alloc_low", "rollout", 0, 60)]
    with house.reading() as cursor:
        other = cursor.sql("select distinct state from state_span where gpu_uuid = 'g1'").fetchall()
    assert other == [("alloc_idle",)]


def test_before_it_is_ready_a_phase_changes_nothing(house: Warehouse) -> None:
    job(house, 1, 60, ready=20)
    put(house, "reading", *read(range(1), 0, 60, QUIET))
    told = {"workload_id": "j", "phase": "compile", "from_at": AT, "until_at": AT + 40 * MINUTE}
    put(house, "workload_phase", told)
    found = spans(house, 60)
    assert found[0][0] == "alloc_starting"
    assert found[0][2:] == (0, 35)  # ready at 20, and 15 minutes of grace
    assert ("alloc_low", "compile", 35, 40) in found
