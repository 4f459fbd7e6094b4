"""Jobs that tell their steps: what is a standstill of theirs, from when to when, and what it costs (problem 101)."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from analyzers.rules.stalled_allocation import StalledAllocation
from gpuledger.model import Window
from tests.warehouse.judged import AT, MINUTE, Judged

PROBLEM_101 = Path(__file__).parents[3] / "shared" / "problems" / "101-hang-at-100.csv"
# A card that looks busy by every counter: nothing but the log of steps can tell that it stands still.
BUSY: Mapping[str, Any] = {
    "gpu_util_ratio": 1.0,
    "sm_active_ratio": 0.7,
    "tensor_active_ratio": 0.3,
    "power_watts": 600.0,
}


@pytest.fixture
def ledger() -> Iterator[Judged]:
    judged = Judged()
    yield judged
    judged.house.close()


def told(ledger: Judged, minutes: Iterable[float], *, rank: int = 0) -> None:
    ledger.put(
        "job_step",
        *(
            {"ts": AT + minute * MINUTE, "workload_id": "w", "rank": rank, "step": step}
            for step, minute in enumerate(minutes, 1)
        ),
    )


def busy(ledger: Judged, *cards: str, minutes: int = 120) -> None:
    ledger.hold(*cards, minutes=minutes)
    for card in cards:
        ledger.read(card, 0, minutes, **BUSY)


def stalled(ledger: Judged, minutes: int = 120) -> list[tuple[float, float]]:
    """From which minute to which cards were stalled, pieces that touch joined, each stretch once."""
    found: list[tuple[float, float]] = []
    for _, begin, end, state in sorted(ledger.spans(minutes=minutes), key=lambda span: (span[0], span[1])):
        if state != "alloc_stalled":
            continue
        first = found.pop()[0] if found and found[-1][1] == begin else begin
        found.append((first, end))
    return sorted(set(found))


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(range(0, 120, 12), [], id="a step of 12 min in a job of 12-minute steps"),
        pytest.param([*range(0, 61, 12), 95, 107, 119], [], id="35 min, under 3 x 12"),
        pytest.param([*range(0, 61, 12), 96, 108, 119], [(60, 96)], id="36 min, 3 x 12"),
        pytest.param([*range(0, 61, 2), *range(69, 120, 2)], [], id="9 min of a job of 2-minute steps"),
        pytest.param([*range(0, 61, 2), *range(70, 120, 2)], [(60, 70)], id="10 min of a job of 2-minute steps"),
        pytest.param(range(0, 111, 2), [(110, 120)], id="10 min to the end of the job"),
        pytest.param(range(1, 112, 2), [], id="9 min to the end of the job"),
        pytest.param(range(0, 97, 12), [], id="24 min after the last of 12-minute steps"),
        pytest.param([], [], id="a job that tells no step is judged by telemetry, which is busy"),
    ],
)
def test_when_a_job_stands_still(ledger: Judged, steps: Iterable[int], expected: list[tuple[float, float]]) -> None:
    busy(ledger, "g")
    told_at = list(steps)
    if told_at:
        told(ledger, told_at)
    assert stalled(ledger) == expected


def test_a_step_told_again_is_no_progress(ledger: Judged) -> None:
    busy(ledger, "g")
    told(ledger, range(0, 61, 2))
    ledger.put(
        "job_step",
        *({"ts": AT + i * MINUTE, "workload_id": "w", "rank": 0, "step": 31} for i in range(62, 120, 2)),
    )
    assert stalled(ledger) == [(60, 120)]


def test_a_standstill_ends_with_the_job(ledger: Judged) -> None:
    ledger.hold("g", minutes=90)
    ledger.read("g", 0, 120, **BUSY)
    told(ledger, range(0, 61, 2))
    assert stalled(ledger) == [(60, 90)]


def test_a_rank_whose_utilization_falls_is_no_standstill_of_the_job(ledger: Judged) -> None:
    ledger.hold("g", "h", minutes=120)
    ledger.read("g", 0, 120, **BUSY)
    ledger.read("h", 0, 60, **BUSY)
    ledger.read("h", 60, 120, **{**BUSY, "gpu_util_ratio": 0.89})
    told(ledger, range(0, 61, 2))
    assert stalled(ledger) == []


def test_a_rank_that_is_not_read_hides_no_standstill(ledger: Judged) -> None:
    """Of four ranks one is silent: the three that were read are stalled, the silent one stays unknown."""
    ledger.hold("a", "b", "c", "d", minutes=120)
    for card in "abc":
        ledger.read(card, 0, 120, **BUSY)
    ledger.read("d", 0, 60, **BUSY)
    told(ledger, range(0, 61, 2))
    hours = ledger.hours("gpu_uuid", "state", minutes=120)
    assert {card: hours.get((card, "alloc_stalled")) for card in "abcd"} == {"a": 1.0, "b": 1.0, "c": 1.0, "d": None}
    assert hours["d", "alloc_unknown"] == 1.0


# 101: every card reads 100 % and the run makes no step.


def hang(ranks: int, *, last_step: int, until: int, every: int, begin: datetime = AT) -> list[dict[str, Any]]:
    """Samples as the problem's file has them: steps until `last_step`, then the same one, in minutes after `begin`."""
    return [
        {
            "ts": (begin + minute * MINUTE).isoformat(),
            "rank": rank,
            "gpu_util": 98 if minute < last_step else 100,
            "tensor_active": 0.3 if minute < last_step else 0.0,
            "power_w": 900 if minute < last_step else 250,
            "step": 10 + min(minute, last_step) // every,
        }
        for minute in range(0, until + 1, every)
        for rank in range(ranks)
    ]


def load(ledger: Judged, rows: list[dict[str, Any]], every: timedelta, until: datetime) -> datetime:
    """Put samples up to `until`, where the job ends; returns when it began."""
    times = [datetime.fromisoformat(str(row["ts"])) for row in rows]
    seen = [(ts, row) for ts, row in zip(times, rows, strict=True) if ts <= until]
    common = {"node": "n", "source": "s", "interval_seconds": every.total_seconds(), "model": "NVIDIA B200"}
    ledger.put(
        "reading",
        *(
            {
                **common,
                "ts": ts,
                "gpu_uuid": f"g{row['rank']}",
                "gpu_util_ratio": float(row["gpu_util"]) / 100,
                "tensor_active_ratio": float(row["tensor_active"]),
                "power_watts": float(row["power_w"]),
            }
            for ts, row in seen
        ),
    )
    ledger.put(
        "job_step",
        *({"ts": ts, "workload_id": "w", "rank": int(row["rank"]), "step": int(row["step"])} for ts, row in seen),
    )
    cards = sorted({f"g{row['rank']}" for row in rows})
    ledger.hold(*cards, minutes=(until - AT) / MINUTE, started_at=min(times), ready_at=min(times) - 60 * MINUTE)
    return min(times)


def check_hang(ledger: Judged, until: datetime, ranks: int, since: datetime) -> None:
    """Stalled on all ranks from `since` to `until`, in the ledger and as one finding."""
    minutes = (until - AT) / MINUTE
    lost = ranks * (until - since) / timedelta(hours=1)
    hours = ledger.hours(minutes=minutes)
    assert hours["alloc_stalled"] == pytest.approx(lost)
    assert "alloc_idle" not in hours
    spans = [span for span in ledger.spans(minutes=minutes) if span[3] == "alloc_stalled"]
    assert min(span[1] for span in spans) == (since - AT) / MINUTE
    (finding,) = StalledAllocation().run(ledger.house, Window(AT, until), {}).findings
    assert finding.cause_code == "no_progress"
    assert finding.gpu_hours_wasted == pytest.approx(lost)


@pytest.mark.parametrize("until", [22, 40], ids=["ten minutes after the last step", "at the end"])
def test_101_busy_without_progress(ledger: Judged, until: int) -> None:
    """Two ranks, a step every 2 min until minute 12: at minute 22 they are stalled, at 40 for 2 x 28/60 GPU-hours."""
    load(ledger, hang(2, last_step=12, until=40, every=2), 2 * MINUTE, AT + until * MINUTE)
    check_hang(ledger, AT + until * MINUTE, 2, AT + 12 * MINUTE)


def test_101_is_not_said_before_ten_minutes(ledger: Judged) -> None:
    load(ledger, hang(2, last_step=12, until=40, every=2), 2 * MINUTE, AT + 20 * MINUTE)
    assert "alloc_stalled" not in ledger.hours(minutes=20)


@pytest.mark.parametrize(("clock", "lost"), [("22:44", 4 * 10 / 60), ("23:06", 2.1333)])
def test_101_as_reported(ledger: Judged, clock: str, lost: float) -> None:
    if not PROBLEM_101.exists():
        pytest.skip("the problem inputs are not here")
    rows = list(csv.DictReader(PROBLEM_101.read_text().splitlines()))
    until = datetime.fromisoformat(f"2026-03-02T{clock}:00+00:00")
    load(ledger, rows, 2 * MINUTE, until)
    check_hang(ledger, until, 4, datetime.fromisoformat("2026-03-02T22:34:00+00:00"))
    assert ledger.hours(minutes=(until - AT) / MINUTE)["alloc_stalled"] == pytest.approx(lost, abs=1e-4)


def test_a_standstill_that_outlasts_the_grace_is_one(ledger: Judged) -> None:
    """Ready at 0: grace ends at 10 and cuts a standstill of 10 minutes, 4 to 14, into two of less."""
    ledger.hold("g", minutes=60, ready_minute=0)
    ledger.read("g", 0, 60, **BUSY)
    told(ledger, [0, 2, 4, *range(14, 60, 2)])
    assert stalled(ledger, 60) == [(4, 14)]
