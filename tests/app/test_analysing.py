"""Rules run hour by hour find what one run over all finds, whatever comes late, and start anew when they change."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from analyzers.rules.idle_allocation import IdleAllocation
from gpuledger.app.analysing import Analysing
from gpuledger.model import RECORDS, Window, to_table
from gpuledger.policy import Policy
from gpuledger.ports import QueryRunner
from gpuledger.testing import FakeClock
from warehouse import Warehouse

START = datetime(2026, 3, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)
IDLE = {"a": [(20, 340), (400, 425)], "b": [(95, 250), (300, 720)], "c": []}
"""Minutes in which each one-card job is idle; everything is ready at the start, so 0 to 15 is grace."""


def at(minute: int) -> datetime:
    return START + timedelta(minutes=minute)


class Told(IdleAllocation):
    """The rule, and the windows that it was asked to claim."""

    asked: list[Window] = []  # noqa: RUF012 shared on purpose

    def claims(self, runner: QueryRunner, window: Window, options: Mapping[str, Any]) -> pa.Table:
        self.asked.append(window)
        return super().claims(runner, window, options)


class Newer(Told):
    version = IdleAllocation.version + 1


class Site:
    """A warehouse that is told the truth an hour at a time."""

    def __init__(self, house: Warehouse, clock: FakeClock) -> None:
        self.house, self.clock = house, clock
        self.numbers = itertools.count()
        job = {"kind": "training", "submitted_at": START, "started_at": START, "pod_count": 1, "num_gpu": 1}
        shape = {"gpu_milli": 1000, "cpu_milli": 0, "memory_mib": 0}
        self.put("workload", *({"workload_id": name, **job, **shape} for name in IDLE))
        hold = {"pod": "p", "node": "n", "share": 1.0, "started_at": START, "ready_at": START}
        same = ("allocation_id", "workload_id", "gpu_uuid")
        self.put("allocation", *({**hold, **dict.fromkeys(same, name)} for name in IDLE))
        Told.asked.clear()

    def engine(self, policy: Policy | None = None) -> Analysing:
        return Analysing(self.house, self.house, policy or Policy(), self.clock)

    def put(self, record: str, *rows: dict[str, Any]) -> None:
        table = to_table(record, [RECORDS[record].cls(**row) for row in rows])
        assert not self.house.ingest(record, table, f"{record}-{next(self.numbers)}").rejected

    def read(self, minutes: range, names: Iterable[str]) -> None:
        """What each card showed in `minutes`."""
        busy = {"sm_active_ratio": 0.9, "gpu_util_ratio": 1.0, "power_watts": 600.0}
        quiet = {"sm_active_ratio": 0.0, "gpu_util_ratio": 0.0, "power_watts": 80.0}
        rows = []
        for name, minute in itertools.product(names, minutes):
            is_idle = any(begin <= minute < end for begin, end in IDLE[name])
            rows.append({"ts": at(minute), "gpu_uuid": name, **(quiet if is_idle else busy)})
        common = {"node": "n", "source": "dcgm", "interval_seconds": 60.0, "model": "H100"}
        self.put("reading", *({**common, **row} for row in rows))

    def hour(self, number: int, silent: str = "") -> None:
        """Read every card but `silent` during hour `number`, and build what is open."""
        self.clock.advance((START + (number + 1) * HOUR + timedelta(minutes=2) - self.now).total_seconds())
        self.read(range(number * 60, number * 60 + 60), [name for name in IDLE if name != silent])
        extent = self.house.query("ledger_extent").to_pylist()[0]
        self.house.build_ledger(Window(extent["final_until_at"] or START, self.now), until_at=self.now)

    @property
    def now(self) -> datetime:
        return self.clock.now()

    @property
    def window(self) -> Window:
        return Window(START, self.now)

    def found(self) -> dict[str, tuple[Any, ...]]:
        rows = self.house.query("finding_list", analyzer="idle_allocation", tenant="").to_pylist()
        return {
            row["finding_id"]: (row["subject_id"], row["window_start"], row["window_end"], row["gpu_hours_wasted"])
            for row in rows
        }


@pytest.fixture
def site() -> Iterator[Site]:
    clock = FakeClock(START)
    with Warehouse.open(None, clock=clock) as house:
        yield Site(house, clock)


def test_hour_by_hour_is_what_one_run_finds(site: Site) -> None:
    ids: dict[str, set[str]] = {"a": set(), "b": set()}
    for number in range(12):
        site.hour(number)
        site.engine().go_on(Told(), site.window, {})
        for finding_id, (subject, *_) in site.found().items():
            ids[subject].add(finding_id)
    assert sorted(site.found().values()) == [
        ("a", at(20), at(340), pytest.approx(320 / 60)),
        ("b", at(95), at(250), pytest.approx(155 / 60)),
        ("b", at(300), at(720), pytest.approx(420 / 60)),
    ]
    assert {subject: len(known) for subject, known in ids.items()} == {"a": 1, "b": 2}, "an identity moved"
    once = Told().run(site.house, site.window, {})
    assert {one.finding_id for one in once.findings} == set(site.found())
    claimed = site.house.query("claims_carried", analyzer="idle_allocation", from_at=site.now)
    assert sum(claimed.column("gpu_hours").to_pylist()) == pytest.approx((155 + 420) / 60), "only b is open"


def test_an_hour_that_is_final_is_not_claimed_again(site: Site) -> None:
    for number in range(12):
        site.hour(number)
        site.engine().go_on(Told(), site.window, {})
    # The ledger is final an hour after an hour's end, the rule an hour later; a build may have begun an hour before.
    assert max(asked.hours for asked in Told.asked) <= 6
    assert Told.asked[-1].from_at >= START + 7 * HOUR
    progress = site.house.query("rule_progress_list").to_pylist()[0]
    assert progress["final_until_at"] == START + 10 * HOUR
    assert progress["provisional_hours"] == 3.0


def test_what_comes_late_is_analysed_again(site: Site) -> None:
    for number in range(12):
        site.hour(number, silent="b" if number == 6 else "")
        site.engine().go_on(Told(), site.window, {})
    assert [one[2] for one in sorted(site.found().values()) if one[0] == "b"] == [at(250), at(360), at(720)]
    site.read(range(360, 420), "b")
    site.house.build_ledger(Window(at(360), at(420)))
    site.engine().go_on(Told(), site.window, {})
    assert [one[1:] for one in sorted(site.found().values()) if one[0] == "b"] == [
        (at(95), at(250), pytest.approx(155 / 60)),
        (at(300), at(720), pytest.approx(420 / 60)),
    ]


@pytest.mark.parametrize("change", ["version", "options", "policy"])
def test_a_change_analyses_everything_again(site: Site, change: str) -> None:
    for number in range(8):
        site.hour(number)
        site.engine().go_on(Told(), site.window, {})
    before = site.found()
    policy = Policy.model_validate(
        {"threshold": [{"rule": "idle_allocation", "workload": "b", "min_idle_minutes": 160}]}
    )
    rule = Newer() if change == "version" else Told()
    options = {"min_idle_minutes": 200} if change == "options" else {}
    site.engine(policy if change == "policy" else None).go_on(rule, site.window, options)
    assert Told.asked[-1].from_at == START
    expected = {
        "version": before,
        "options": {key: row for key, row in before.items() if row[0] == "a"},
        "policy": {key: row for key, row in before.items() if row[1] != at(95)},
    }[change]
    assert set(site.found()) == set(expected)


def test_anew_forgets_what_another_window_found(site: Site) -> None:
    for number in range(8):
        site.hour(number)
    site.engine().go_on(Told(), site.window, {})
    site.engine().go_on(Told(), Window(at(240), at(480)), {}, anew=True)
    assert sorted(row[:3] for row in site.found().values()) == [
        ("a", at(240), at(340)),
        ("b", at(240), at(250)),  # the end of a stretch that began before
        ("b", at(300), at(480)),
    ]
