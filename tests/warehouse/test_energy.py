"""Energy by the cards' own counters, and rows refused at the door: what is told of both, by hand."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuledger.model import Pod, QualityEvent, Reading, Window, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse, quality

AT = datetime(2026, 3, 2, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
BATCHES = itertools.count()
PROBLEMS = Path(__file__).resolve().parents[3] / "shared" / "problems"


@pytest.fixture
def house() -> Iterator[Warehouse]:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=2))) as opened:
        yield opened


def reading(at: datetime, card: str = "a", **values: Any) -> Reading:
    said: dict[str, Any] = {"source": "dcgm", "interval_seconds": 60.0, "gpu_util_ratio": 0.5} | values
    return Reading(ts=at, node="n1", gpu_uuid=f"GPU-{card}", **said)


def put(house: Warehouse, *rows: Reading) -> None:
    assert not house.ingest("reading", to_table("reading", rows), f"b{next(BATCHES)}").rejected


def told_of(house: Warehouse, hours: float, start: datetime = AT) -> list[tuple[str, str, int]]:
    """(kind, subject, count) of the window after it was worked out."""
    window = Window(start, start + hours * HOUR)
    with house.writing() as cursor:
        quality.build(cursor, window.from_at, window.to_at)
    rows = house.query("quality_list", kind="", from_at=window.from_at, to_at=window.to_at, limit_count=1000)
    return [(row["kind"], row["subject"], row["count"]) for row in rows.to_pylist()]


# 030: an energy counter that falls.


def energy(house: Warehouse, start: datetime, hours: float, *readings: Reading) -> dict[str, Any]:
    put(house, *readings)
    told_of(house, hours, start)
    (row,) = house.query("energy_by_gpu", from_at=start, to_at=start + hours * HOUR).to_pylist()
    return row


def check_reset(row: dict[str, Any]) -> None:
    assert row["energy_joules"] == pytest.approx(840_000, abs=1e-6)
    assert row["energy_kwh"] == pytest.approx(0.2333333, abs=1e-6)
    assert (row["reset_count"], row["impossible_count"], row["reading_count"]) == (1, 0, 4)


def test_a_counter_that_falls_has_been_reset(house: Warehouse) -> None:
    told = (5_000_000.0, 5_360_000.0, 120_000.0, 480_000.0)
    rows = [reading(AT + 20 * i * MINUTE, energy_joules=joules, interval_seconds=1200) for i, joules in enumerate(told)]
    check_reset(energy(house, AT, 2, *rows))
    assert ("counter_reset", "GPU-a", 1) in told_of(house, 2)


def test_030_as_reported(house: Warehouse) -> None:
    if not PROBLEMS.is_dir():
        pytest.skip("../shared is absent: this checkout has no public problem inputs beside it")
    with (PROBLEMS / "030-energy-reset.csv").open(encoding="utf-8") as file:
        rows = [
            reading(datetime.fromisoformat(line["ts"]), energy_joules=float(line["energy_mj"]) / 1000)
            for line in csv.DictReader(file)
        ]
    check_reset(energy(house, AT, 2, *rows))


def every_minute(joules: Iterable[float | None], **values: Any) -> list[Reading]:
    said: dict[str, Any] = {"model": "NVIDIA H100 80GB HBM3"} | values
    return [reading(AT + i * MINUTE, energy_joules=shown, **said) for i, shown in enumerate(joules)]


def at_500_watts(first: int, until: int) -> list[float]:
    return [1e9 + 30_000.0 * minute for minute in range(first, until)]


def found(row: dict[str, Any]) -> tuple[float | None, int, int]:
    return row["energy_joules"], row["reset_count"], row["impossible_count"]


def test_a_value_that_no_card_can_reach_is_named_and_the_others_count(house: Warehouse) -> None:
    # An H100 may draw 700 W: 1.5 x 700 x 60 = 63,000 J a minute.
    rows = every_minute((1000.0, 43_000.0, 1e12, 85_000.0, 127_000.0))
    assert found(energy(house, AT, 1, *rows)) == (126_000, 0, 1)
    assert ("impossible_increase", "GPU-a", 1) in told_of(house, 1)


def test_where_no_rise_can_be_counted_the_energy_is_not_known(house: Warehouse) -> None:
    rows = every_minute(69_000.0 * i for i in range(60))  # 1,150 W: more than 1.5 x 700 W, less than 1.5 x 1,200 W
    assert found(energy(house, AT, 1, *rows)) == (None, 0, 59)


def test_a_level_that_is_reached_in_a_leap_is_gone_on_from(house: Warehouse) -> None:
    rows = every_minute((0.0, 30_000.0, 1e9, 1e9 + 30_000, 1e9 + 60_000))
    assert found(energy(house, AT, 1, *rows)) == (90_000, 0, 1)


def test_a_value_that_is_kept_for_a_while_is_judged_over_its_distance(house: Warehouse) -> None:
    # 700 W, a new value every 30 s, read every 15 s: 21,000 J in 15 s would be 1,400 W.
    rows = [
        reading(AT + timedelta(seconds=15 * i), energy_joules=21_000.0 * (i // 2), model="H100", interval_seconds=15)
        for i in range(60)
    ]
    assert found(energy(house, AT, 1, *rows)) == (29 * 21_000, 0, 0)


def test_a_card_seen_by_two_sources_takes_its_energy_once(house: Warehouse) -> None:
    both = [
        reading(AT + i * MINUTE, energy_joules=1000.0 * i, source=source)
        for i in range(10)
        for source in ("dcgm", "nvml")
    ]
    assert energy(house, AT, 1, *both)["energy_joules"] == 9000


@pytest.mark.parametrize("changed", ["node", "source"])
def test_the_counter_is_the_cards_whoever_reads_it(house: Warehouse, changed: str) -> None:
    before, after = {"node": ("n1.example.com", "n1"), "source": ("remote_write/a", "remote_write/b")}[changed]
    rows = [
        Reading(
            ts=AT + i * MINUTE, gpu_uuid="GPU-a", energy_joules=shown, interval_seconds=60.0,
            **{"node": "n1", "source": "dcgm", changed: before if i < 30 else after},  # type: ignore[arg-type]
        )
        for i, shown in enumerate(at_500_watts(0, 60))
    ]  # fmt: skip
    assert found(energy(house, AT, 1, *rows)) == (59 * 30_000, 0, 0)


@pytest.mark.parametrize("after_seconds", [3, 30, 59])
def test_a_second_exporter_that_keeps_values_resets_nothing(house: Warehouse, after_seconds: int) -> None:
    kept = [
        reading(
            AT + i * MINUTE + timedelta(seconds=after_seconds), energy_joules=shown - 500.0 * (30 - after_seconds % 30)
        )
        for i, shown in enumerate(at_500_watts(0, 60))
    ]
    rows = every_minute(at_500_watts(0, 60)) + kept
    assert found(energy(house, AT, 1, *rows)) == (59 * 30_000, 0, 0)


def test_a_reset_to_what_the_card_cannot_have_drawn_is_one_once_the_counter_goes_on_from_there(
    house: Warehouse,
) -> None:
    rows = every_minute((1e9, *(5e5 + 30_000.0 * i for i in range(4))))
    assert found(energy(house, AT, 1, *rows)) == (90_000, 1, 1)


@pytest.mark.parametrize("gap_hours", [3, 23, 25])
def test_a_gap_gives_the_same_energy_however_the_hours_are_built(house: Warehouse, gap_hours: int) -> None:
    late = 60 * (1 + gap_hours)
    times = [*range(60), *range(late, late + 60)]
    put(house, *[reading(AT + m * MINUTE, energy_joules=1e6 + 30_000.0 * m) for m in times])
    hours = 2 + gap_hours
    window = {"from_at": AT, "to_at": AT + hours * HOUR}
    whole = {3: 299, 23: 1499, 25: 118}[gap_hours] * 30_000  # what rose over more than a day is not known
    told_of(house, hours)
    assert house.query("energy_by_gpu", **window).column("energy_joules").to_pylist() == [whole]
    for hour in (0, hours - 1):
        told_of(house, 1, AT + hour * HOUR)
    assert house.query("energy_by_gpu", **window).column("energy_joules").to_pylist() == [whole]


def test_readings_that_come_later_leave_nothing_counted_twice(house: Warehouse) -> None:
    def shown(*minutes: int) -> list[Reading]:
        return [reading(AT + m * MINUTE, energy_joules=30_000.0 * m) for m in minutes]

    put(house, *shown(*range(60), *range(240, 300)))
    told_of(house, 5)
    put(house, *shown(*range(60, 240)))
    told_of(house, 3, AT + HOUR)  # the hours of the gap only
    rows = house.query("energy_by_gpu", from_at=AT + 4 * HOUR, to_at=AT + 5 * HOUR).to_pylist()
    assert rows[0]["energy_joules"] == 60 * 30_000
    (row,) = house.query("energy_by_gpu", from_at=AT, to_at=AT + 5 * HOUR).to_pylist()
    assert found(row) == (299 * 30_000, 0, 0)


def test_one_reading_says_nothing_of_energy(house: Warehouse) -> None:
    assert energy(house, AT, 1, reading(AT, energy_joules=5.0))["energy_joules"] is None


JOULES = st.one_of(st.floats(0, 1e15), st.floats(0, 1e6), st.sampled_from([0.0, 9.2e14, 1e15, 63_000.0]))


CARDS = itertools.count()


@pytest.fixture(scope="module")
def common() -> Iterator[Warehouse]:
    with Warehouse.open(None, clock=FakeClock(AT + HOUR)) as opened:
        yield opened


@settings(max_examples=40, deadline=None)
@given(told=st.lists(JOULES, min_size=1, max_size=40))
def test_energy_is_never_negative_and_never_more_than_the_card_can_draw(common: Warehouse, told: list[float]) -> None:
    card = f"energy-{next(CARDS)}"
    put(common, *[reading(AT + i * MINUTE, card, energy_joules=j, model="H100") for i, j in enumerate(told)])
    with common.writing() as cursor:
        quality.build(cursor, AT, AT + HOUR)
    rows = common.query("energy_by_gpu", from_at=AT, to_at=AT + HOUR).to_pylist()
    row = next(row for row in rows if row["gpu_uuid"] == f"GPU-{card}")
    assert row["reset_count"] <= sum(after < before for before, after in itertools.pairwise(told))
    if row["energy_joules"] is None:
        assert len(told) == 1 or row["impossible_count"] > 0
    else:
        assert 0 <= row["energy_joules"] <= 63_000 * (len(told) - 1) * (1 + 1e-12)


# What was refused at the door.


def readings_at(*times: datetime) -> list[Reading]:
    return [reading(at, str(number), interval_seconds=15.0) for number, at in enumerate(times)]


def check_wrong_clocks(now: datetime, times: list[datetime]) -> None:
    clock = FakeClock(now)
    with Warehouse.open(None, clock=clock) as house:
        result = house.ingest("reading", to_table("reading", readings_at(*times)), "b")
        assert (result.accepted, result.rejected_count) == (3, 2)
        assert house.query("last_read").to_pylist()[0]["read_at"] == now + 9 * MINUTE
        again = house.ingest("reading", to_table("reading", readings_at(*times)), "b")
        assert again.duplicate
        clock.advance(600)
        house.build_ledger(Window(now, now + HOUR))
        rows = house.query("quality_list", kind="", from_at=now, to_at=now + HOUR, limit_count=100).to_pylist()
    told = {(row["kind"], row["subject"], row["detail"]): (row["count"], row["value"]) for row in rows}
    assert {key: told[key] for key in told if key[0] in ("clock_skew", "refused_sample")} == {
        ("clock_skew", "n1", "ahead of the service"): (1, 7 * 86_400.0),
        ("refused_sample", "reading", "ts lies in the future"): (1, None),
        ("refused_sample", "reading", "ts is too old"): (1, None),
    }


def test_033_times_in_the_future_and_in_1970() -> None:
    seconds_for_milliseconds = datetime.fromtimestamp(AT.timestamp() / 1000, UTC)
    later = [timedelta(), timedelta(seconds=30), 9 * MINUTE, timedelta(days=7)]
    check_wrong_clocks(AT, [AT + wait for wait in later] + [seconds_for_milliseconds])


def test_033_as_reported() -> None:
    if not PROBLEMS.is_dir():
        pytest.skip("../shared is absent: this checkout has no public problem inputs beside it")
    problem = json.loads((PROBLEMS / "033-future-and-1970.json").read_text(encoding="utf-8"))
    times = [datetime.fromtimestamp(ms / 1000, UTC) for ms in problem["samples_ms"]]
    check_wrong_clocks(datetime.fromisoformat(problem["receiver_now"]), times)


def test_refused_rows_of_records_without_a_node_name_the_record(house: Warehouse) -> None:
    now = AT + timedelta(days=2)
    late = Pod(uid="u", namespace="a", pod="p", seen_at=now + timedelta(days=400 * 365))
    event = QualityEvent(ts=now + HOUR, source="s", subject_kind="target", subject="t", kind="gap", detail="", count=1)
    house.ingest("pod", to_table("pod", [late]), "p")
    house.ingest("quality_event", to_table("quality_event", [event]), "q")
    with house.writing() as cursor:
        rows = cursor.execute("select subject_kind, subject, kind, count from quality_event order by all").fetchall()
    assert rows == [
        ("target", "pod", "refused_sample", 1),
        ("target", "quality_event", "clock_skew", 3600),
        ("target", "quality_event", "refused_sample", 1),
    ]
