"""The suite of all readers sees what a reader may not say: each check fails for the snapshot that it is there for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuledger.errors import SchedulerUnreachable
from gpuledger.model import Queue, QueueState, Quota, Wait, Workload
from gpuledger.ports import SchedulerSnapshot, SnapshotScope
from gpuledger.testing import FakeClock
from schedulers.rows import SnapshotRows
from tests.schedulers.reading import (
    Cannot,
    World,
    check_costs_itself,
    check_error,
    check_no_false_zeros,
    check_snapshot,
    timeless,
)

AT = datetime(2026, 3, 2, tzinfo=UTC)
NONE = Cannot("it is a table")
QUEUE = Queue(queue="q", tenant="t", scheduler="table")
QUOTA = Quota(queue="q", tenant="t", nominal_gpus=8, from_at=AT)
STATE = QueueState(ts=AT, queue="q", tenant="t", duration_seconds=0.001, running_gpus=4.0)
WORKLOAD = Workload(
    workload_id="w", queue="q", submitted_at=AT, pod_count=1, num_gpu=4, gpu_milli=1000, cpu_milli=0, memory_mib=0,
    status="pending", pending_cause="quota", pending_reason="Full",
)  # fmt: skip
WAIT = Wait(workload_id="w", from_at=AT, cause="quota", reason="Full", gpus=4)
GOOD = (QUEUE, QUOTA, STATE, WORKLOAD, WAIT)


class Reader:
    """A reader of nothing: the checks look at its name alone."""

    name = "table"
    cluster = "default"

    def snapshot(self) -> SchedulerSnapshot:
        return snapshot()


def snapshot(*given: Any, scope: SnapshotScope | None = None) -> SchedulerSnapshot:
    rows = SnapshotRows("table", "default", AT)
    rows.add(*(given or GOOD))
    return rows.snapshot("1", scope or SnapshotScope())


def test_a_good_one_passes() -> None:
    check_snapshot(snapshot(), Reader())


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ((QUEUE, replace(QUOTA, limit_gpus=float("inf"))), "limit_gpus is inf"),
        ((QUEUE, replace(QUOTA, limit_gpus=1.7e308)), "unlimited is None"),
        ((QUEUE, replace(QUOTA, nominal_gpus=-1.0)), "nominal_gpus is -1"),
        ((QUEUE, replace(STATE, pending_gpus=float("nan"))), "pending_gpus is nan"),
        ((QUEUE, QUOTA, QUOTA), "more than one row"),
        ((QUEUE, replace(QUOTA, queue="other")), "quota names"),
        ((QUEUE, replace(STATE, queue="other")), "queue_state names"),
        ((QUEUE, replace(WORKLOAD, queue="other"), WAIT), "workloads name"),
        ((replace(QUEUE, scheduler="else"),), "queue"),
        ((replace(QUEUE, status="full"),), "none of its words"),
        ((QUEUE, replace(WORKLOAD, pending_cause=None), WAIT), "waits for no cause"),
        ((QUEUE, replace(WORKLOAD, pending_reason=None), WAIT), "waits for no reason"),
        ((QUEUE, WORKLOAD), "has no wait"),
        ((QUEUE, WORKLOAD, replace(WAIT, cause="capacity")), "another cause"),
        ((QUEUE, replace(WORKLOAD, status="running"), WAIT), "is running and waits"),
        ((QUEUE, replace(WORKLOAD, status="running", pending_cause=None), WAIT), "does not wait"),
        ((QUEUE, replace(QUOTA, from_at=AT + timedelta(seconds=1))), "begins after"),
        ((QUEUE, replace(QUOTA, until_at=AT + timedelta(seconds=1))), "has an end"),
    ],
)
def test_a_wrong_one_is_seen(wrong: tuple[Any, ...], told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        check_snapshot(snapshot(*wrong), Reader())


def test_two_reads_differ_in_more_than_times() -> None:
    later = SnapshotRows("table", "default", AT + timedelta(minutes=1))
    later.add(replace(QUOTA, from_at=later.taken_at))
    assert timeless(later.snapshot("1", SnapshotScope()))["quota"] == timeless(snapshot())["quota"]
    later.of("quota")[0] = replace(QUOTA, from_at=later.taken_at, nominal_gpus=9)
    assert timeless(later.snapshot("1", SnapshotScope()))["quota"] != timeless(snapshot())["quota"]


DENIED = SnapshotScope(denied=(("work", "403"),))


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (
            lambda: snapshot(QUEUE, QUOTA, replace(STATE, running_gpus=0.0), WORKLOAD, WAIT, scope=DENIED),
            "running_gpus",
        ),
        (lambda: _emptied("workload", "wait"), "lists as gone"),
    ],
)
def test_a_zero_for_what_was_not_seen_is_seen(after: Callable[[], SchedulerSnapshot], told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        check_no_false_zeros(snapshot(), after())


def test_what_is_named_as_unlisted_is_no_zero() -> None:
    check_no_false_zeros(snapshot(), _emptied("workload", "wait", unlisted=frozenset({"workload", "wait"})))


def _emptied(*records: str, unlisted: frozenset[str] = frozenset()) -> SchedulerSnapshot:
    whole = snapshot(scope=replace(DENIED, unlisted=unlisted))
    return replace(
        whole, records={name: (rows[:0] if name in records else rows) for name, rows in whole.records.items()}
    )


def test_an_object_that_takes_others_with_it_is_seen() -> None:
    rows = SnapshotRows("table", "default", AT)
    rows.add(QUEUE, QUOTA, STATE)
    rows.listed("workload")
    rows.problem("unreadable_object", "bad", "no number")
    with pytest.raises(AssertionError, match="lost beside bad"):
        check_costs_itself(snapshot(), rows.snapshot("1", SnapshotScope()), "bad")
    with pytest.raises(AssertionError, match="no problem names worse"):
        check_costs_itself(snapshot(), rows.snapshot("1", SnapshotScope()), "worse")


def test_an_error_without_its_place_or_with_a_secret_is_seen() -> None:
    world = World(
        reader=Reader(), options={}, place="http://one", clock=FakeClock(), waiting=NONE, unlimited=NONE, stop=NONE,
        forbid=NONE, spoil=NONE, tear=NONE, secrets=("hush",),
    )  # fmt: skip
    check_error(SchedulerUnreachable("http://one: gone"), world)
    with pytest.raises(AssertionError, match="does not name"):
        check_error(SchedulerUnreachable("gone"), world)
    caused = SchedulerUnreachable("http://one: gone")
    caused.__cause__ = ValueError("token hush was refused")
    with pytest.raises(AssertionError, match="tells a secret"):
        check_error(caused, world)
