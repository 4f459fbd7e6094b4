"""Quota against demand: the arithmetic of windows, and the Helios trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.quota_history import Outages, find_outages, hourly, merged
from analyzers.recommend.move_quota import MoveQuota
from analyzers.rules.quota_balance import QuotaBalance
from analyzers.rules.quota_labels import fold
from collector.importers import helios
from gpuledger.model import QueueState, Quota, QuotaChange, Window, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse

AT = datetime(2026, 3, 2, tzinfo=UTC)
SUMMED = (
    "covered_hours",
    "nominal_known_hours",
    "nominal_gpu_hours",
    "running_gpu_hours",
    "pending_gpu_hours",
    "idle_gpu_hours",
    "idle_quota_gpu_hours",
    "outage_gpu_hours",
    "unmet_gpu_hours",
)


def _sums(hours: pl.DataFrame) -> dict[str, float]:
    return {name: float(hours[name].sum()) for name in SUMMED}


@st.composite
def _states(draw: st.DrawFn) -> list[QueueState]:
    """Two queues with states of odd lengths one after another, some minutes missing between them."""
    made = []
    for queue in ("qa", "qb"):
        ts = AT - timedelta(minutes=draw(st.integers(0, 90)))
        for _ in range(draw(st.integers(1, 6))):
            seconds = draw(st.sampled_from([1, 59, 60, 600, 3600, 5400.5]))
            nominal = draw(st.sampled_from([None, 0.0, 4.0, 10.0]))
            running, pending = draw(st.integers(0, 12)), draw(st.integers(0, 12))
            made.append(
                QueueState(
                    ts=ts,
                    queue=queue,
                    tenant=queue[1],
                    duration_seconds=seconds,
                    nominal_gpus=nominal,
                    running_gpus=float(running),
                    pending_gpus=float(pending),
                )
            )
            ts += timedelta(seconds=seconds + draw(st.sampled_from([0, 0, 7])))
    return made


def _outage(minutes: tuple[int, int]) -> Outages:
    begin, length = minutes
    return Outages((Window(AT + timedelta(minutes=begin), AT + timedelta(minutes=begin + length)),))


@settings(max_examples=8, deadline=None)
@given(
    states=_states(),
    cut=st.integers(1, 359),
    minutes=st.tuples(st.integers(0, 200), st.integers(1, 200)),
    data=st.data(),
)
def test_windows_add_up_and_order_changes_nothing(
    states: list[QueueState], cut: int, minutes: tuple[int, int], data: st.DataObject
) -> None:
    quota = Quota(queue="qa", tenant="a", nominal_gpus=6, from_at=AT + timedelta(minutes=45))
    outages = _outage(minutes)
    whole = Window(AT, AT + timedelta(hours=6))
    middle = AT + timedelta(minutes=cut)
    found = []
    for order in (states, data.draw(st.permutations(states))):
        with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=1))) as house:
            house.ingest("quota", to_table("quota", [quota]), "q")
            house.ingest("queue_state", to_table("queue_state", order), "s")
            sums = _sums(hourly(house, whole, outages))
            parts = [hourly(house, part, outages) for part in (Window(AT, middle), Window(middle, whole.to_at))]
        added = {name: sum(part[name].sum() for part in parts) for name in SUMMED}
        assert added == pytest.approx(sums, abs=1e-6)
        found.append(sums)
    assert found[0] == pytest.approx(found[1], abs=1e-9)
    assert found[0]["outage_gpu_hours"] <= found[0]["idle_gpu_hours"] + 1e-9
    assert found[0]["idle_quota_gpu_hours"] <= found[0]["idle_gpu_hours"] + 1e-9


@settings(max_examples=10, deadline=None)
@given(states=_states())
def test_what_is_over_and_what_is_missing_balance_with_demand(states: list[QueueState]) -> None:
    known = [state for state in states if state.nominal_gpus is not None]
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=1))) as house:
        house.ingest("queue_state", to_table("queue_state", known), "s")
        sums = _sums(hourly(house, Window(AT, AT + timedelta(hours=6)), Outages()))
    demand = sums["running_gpu_hours"] + sums["pending_gpu_hours"]
    assert sums["idle_quota_gpu_hours"] - sums["unmet_gpu_hours"] == pytest.approx(
        sums["nominal_gpu_hours"] - demand, abs=1e-6
    )


def test_quota_of_several_flavors_adds_up_and_a_later_record_wins(house: Warehouse, put: Callable[..., None]) -> None:
    begin = AT - timedelta(days=1)
    put("quota", {"queue": "q", "tenant": "t", "flavor": "h100", "nominal_gpus": 8, "from_at": begin})
    put("quota", {"queue": "q", "tenant": "t", "flavor": "l40s", "nominal_gpus": 2, "from_at": begin})
    put(
        "quota",
        {"queue": "q", "tenant": "t", "flavor": "h100", "nominal_gpus": 4, "from_at": AT + timedelta(minutes=30)},
    )
    put(
        "queue_state",
        {"ts": AT, "queue": "q", "tenant": "t", "duration_seconds": 3600, "running_gpus": 0, "pending_gpus": 0},
    )
    sums = _sums(hourly(house, Window(AT, AT + timedelta(hours=1)), Outages()))
    assert sums["nominal_gpu_hours"] == pytest.approx(8.0)


def test_unknown_quota_is_not_zero(house: Warehouse, put: Callable[..., None]) -> None:
    put(
        "queue_state",
        {"ts": AT, "queue": "q", "tenant": "t", "duration_seconds": 3600, "running_gpus": 3, "pending_gpus": 2},
    )
    window = Window(AT, AT + timedelta(hours=1))
    totals = QuotaBalance().run(house, window, {}).totals
    assert totals["tenants"][0]["nominal_gpus"] is None
    assert totals["tenants"][0]["allocation_ratio"] is None
    assert totals["tenants"][0]["unmet_gpu_hours"] == 0
    assert totals["tenants"][0]["label"] == "insufficient_history"


def test_a_fleet_that_is_often_idle_has_no_outage(house: Warehouse, put: Callable[..., None]) -> None:
    for i, running in enumerate([4.0, 0.0] * 5):
        ts = AT + timedelta(hours=i)
        put(
            "queue_state",
            {
                "ts": ts,
                "queue": "q",
                "tenant": "t",
                "duration_seconds": 3600,
                "running_gpus": running,
                "pending_gpus": 0,
            },
        )
    window = Window(AT, AT + timedelta(hours=10))
    assert not find_outages(house, window, normal_ratio=0.9, min_minutes=10).windows
    assert len(find_outages(house, window, normal_ratio=0.5, min_minutes=10).windows) == 5


def test_what_a_queue_did_not_report_is_missing_and_no_outage(house: Warehouse, put: Callable[..., None]) -> None:
    shared = {"tenant": "t", "pending_gpus": 0}
    put("queue_state", {"ts": AT, "queue": "qa", "duration_seconds": 36000, "running_gpus": 4.0, **shared})
    put(
        "queue_state",
        {"ts": AT + timedelta(hours=10), "queue": "qa", "duration_seconds": 1800, "running_gpus": 0, **shared},
    )
    put(
        "queue_state",
        {"ts": AT + timedelta(hours=11), "queue": "qa", "duration_seconds": 36000, "running_gpus": 4.0, **shared},
    )
    window = Window(AT, AT + timedelta(hours=21))
    found = find_outages(house, window, normal_ratio=0.9, min_minutes=10)
    assert [(w.from_at, w.to_at) for w in found.windows] == [(AT + timedelta(hours=10), AT + timedelta(hours=10.5))]
    put("queue_state", {"ts": AT, "queue": "qb", "duration_seconds": 3600, "running_gpus": 1.0, **shared})
    put(
        "queue_state",
        {"ts": AT + timedelta(hours=12), "queue": "qb", "duration_seconds": 3600, "running_gpus": 1.0, **shared},
    )
    assert not find_outages(house, window, normal_ratio=0.9, min_minutes=10).windows


def test_merged_windows_touch_and_contain() -> None:
    def window(begin: int, end: int) -> Window:
        return Window(AT + timedelta(hours=begin), AT + timedelta(hours=end))

    assert merged([window(3, 4), window(0, 2), window(1, 2), window(2, 3), window(6, 7)]) == (
        window(0, 4),
        window(6, 7),
    )


@pytest.mark.parametrize(
    ("labels", "tenant"),
    [
        ({"underused", "blocked"}, "mixed"),
        ({"underused", "balanced"}, "underused"),
        ({"blocked", "balanced", "insufficient_history"}, "blocked"),
        ({"mixed", "balanced"}, "mixed"),
        ({"insufficient_history"}, "insufficient_history"),
    ],
)
def test_labels_of_queues_fold_into_one_of_the_tenant(labels: set[str], tenant: str) -> None:
    assert fold(labels) == tenant


HELIOS = Window(datetime(2020, 5, 1, tzinfo=UTC), datetime(2020, 6, 1, tzinfo=UTC))
BLOCKED = {"vc6YE", "vcLJZ", "vcMod", "vcTJs", "vcvlY"}


def _helios(house: Warehouse, shared: Path) -> None:
    for i, (record, table) in enumerate(helios.read(file=shared / "data" / "helios" / "earth_vc_minute.parquet")):
        assert not house.ingest(record, table, f"helios-{i}").rejected


def _near(row: Mapping[str, Any], ratio: float, idle: float, pending: float) -> None:
    assert row["allocation_ratio"] == pytest.approx(ratio, abs=5e-5)
    assert row["idle_gpu_hours"] == pytest.approx(idle, abs=0.051)
    assert row["pending_gpu_hours"] == pytest.approx(pending, abs=0.051)


def test_helios(shared: Path, house: Warehouse) -> None:
    _helios(house, shared)
    found = QuotaBalance().run(house, HELIOS, {})
    tenants = {row["tenant"]: row for row in found.totals["tenants"]}
    _near(tenants["vc6YE"], 0.9026, 15068.3, 14803.2)
    _near(tenants["vcira"], 0.0210, 17481.2, 0)
    _near(found.totals["fleet"], 0.7003, 139158.0, 31785.6)
    assert found.totals["outage_minutes"] == 1566
    assert [(o["from_at"], o["until_at"]) for o in found.totals["outages"]] == [
        (datetime(2020, 5, 9, 23, 56, tzinfo=UTC), datetime(2020, 5, 11, 0, 1, tzinfo=UTC)),
        (datetime(2020, 5, 12, 14, 1, tzinfo=UTC), datetime(2020, 5, 12, 16, 2, tzinfo=UTC)),
    ]
    labels = {tenant: row["label"] for tenant, row in tenants.items()}
    expected = {tenant: "blocked" if tenant in BLOCKED else "balanced" for tenant in labels}
    assert labels == {**expected, "vcira": "underused"}
    by_cause = {finding.subject_id: finding.cause_code for finding in found.findings}
    assert by_cause == {"vcira": "quota_idle", **dict.fromkeys(BLOCKED, "quota_blocked")}


def test_helios_move(shared: Path, house: Warehouse) -> None:
    _helios(house, shared)
    (found,) = MoveQuota().recommend(house, HELIOS, {})
    changes = [change for change in found.changes if isinstance(change, QuotaChange)]
    moves = {change.queue: change.nominal_gpus_after - change.nominal_gpus_before for change in changes}
    assert moves == {"vcira": -12, "vc6YE": 12}
    assert found.details["valid_days"] == 27
    assert found.details["hold_out"]["passed"]
    assert found.confidence == 0.7
    assert found.expected_gpu_hours == pytest.approx(3480.1, abs=0.1)
