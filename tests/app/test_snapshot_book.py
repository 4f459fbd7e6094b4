"""The book of a scheduler: what a snapshot adds, changes and ends, and what it must leave alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from gpuledger.app.schedulers.book import SnapshotBook
from gpuledger.model import (
    Allocation,
    Condition,
    NodeState,
    Pod,
    Queue,
    QueueState,
    Quota,
    Wait,
    Workload,
    WorkloadEvent,
    to_table,
)
from gpuledger.ports import SchedulerSnapshot, SnapshotScope

AT = datetime(2026, 3, 2, 10, tzinfo=UTC)
INTERVAL = 60.0
WHOLE = SnapshotScope()
SHAPE: dict[str, Any] = {"pod_count": 1, "num_gpu": 2, "gpu_milli": 1000, "cpu_milli": 0, "memory_mib": 0}


def at(minutes: float) -> datetime:
    return AT + timedelta(minutes=minutes)


def snap(minutes: float, scope: SnapshotScope = WHOLE, **records: list[Any]) -> SchedulerSnapshot:
    tables = {record: to_table(record, rows) for record, rows in records.items()}
    return SchedulerSnapshot(taken_at=at(minutes), version=str(minutes), records=tables, scope=scope)


def state(minutes: float, allocated: float = 2, node: str = "n") -> NodeState:
    free: dict[str, Any] = {"allocatable": 8.0, "allocated": allocated, "free": 8 - allocated}
    return NodeState(scheduler="k", node=node, resource="gpu", capacity=8, from_at=at(minutes), **free)


def a_pod(minutes: float, uid: str = "u", **more: Any) -> Pod:
    given = {"namespace": "a", "phase": "Running", "started_at": AT, "gpu_count": 2.0, **more}
    return Pod(uid=uid, pod=uid, seen_at=at(minutes), **given)


def a_workload(name: str = "w", **more: Any) -> Workload:
    given = {"submitted_at": AT, "scheduler": "k", "namespace": "a", "status": "running", **more}
    return Workload(workload_id=name, **SHAPE, **given)


def a_state(minutes: float, running: float = 4, queue: str = "q") -> QueueState:
    return QueueState(ts=at(minutes), queue=queue, tenant="t", duration_seconds=0.001, running_gpus=running)


class Told:
    """What a book gave for each of several snapshots, one after another."""

    def __init__(self, *snapshots: SchedulerSnapshot) -> None:
        self.book = SnapshotBook("k", INTERVAL)
        self.rows: list[dict[str, pa.Table]] = []
        for snapshot in snapshots:
            self.feed(snapshot)

    def feed(self, snapshot: SchedulerSnapshot) -> Mapping[str, pa.Table]:
        rows, self.book = self.book.take(snapshot)
        self.rows.append(rows)
        return rows

    def of(self, record: str, *columns: str) -> list[list[tuple[Any, ...]]]:
        """The columns of the rows of each snapshot, times in minutes."""
        return [
            [tuple(_minutes(row[column]) for column in columns) for row in rows[record].to_pylist()]
            if record in rows
            else []
            for rows in self.rows
        ]


def _minutes(value: Any) -> Any:
    return (value - AT).total_seconds() / 60 if isinstance(value, datetime) else value


def test_what_does_not_change_is_not_stored_again() -> None:
    told = Told(snap(0, node_state=[state(0)]), snap(1, node_state=[state(1)]), snap(2, node_state=[state(2)]))
    assert [len(rows) for rows in told.rows] == [1, 0, 0]


def test_a_fact_that_changes_ends_and_another_begins() -> None:
    told = Told(snap(0, node_state=[state(0)]), snap(1, node_state=[state(1, 4)]))
    assert told.of("node_state", "allocated", "from_at", "until_at") == [[(2, 0, None)], [(2, 0, 1), (4, 1, None)]]


def test_a_fact_that_is_not_listed_any_more_has_ended() -> None:
    both = [state(0), state(0, node="m")]
    told = Told(snap(0, node_state=both), snap(1, node_state=[state(1)]), snap(2, node_state=[]))
    assert told.of("node_state", "node", "until_at")[1:] == [[("m", 1)], [("n", 2)]]


def test_a_record_that_was_not_asked_for_or_could_not_be_listed_whole_ends_nothing() -> None:
    denied = SnapshotScope(denied=(("nodes", "403"),), unlisted=frozenset({"node_state"}))
    told = Told(snap(0, node_state=[state(0)]), snap(1), snap(2, denied, node_state=[]))
    assert told.of("node_state", "node") == [[("n",)], [], []]
    told.feed(snap(3, node_state=[]))
    assert told.of("node_state", "node", "until_at")[3] == [("n", 3)]


def test_what_ends_after_a_long_silence_ended_when_the_last_look_is_worth_nothing_any_more() -> None:
    told = Told(snap(0, node_state=[state(0)], pod=[a_pod(0)]), snap(60, node_state=[], pod=[]))
    assert told.of("node_state", "until_at")[1] == [(3,)]
    assert told.of("pod", "ended_at", "seen_at")[1] == [(3, 3)]


def test_a_fact_begins_when_the_scheduler_says() -> None:
    def lost(begin: float) -> list[Any]:
        return [Condition(subject_kind="node", subject="n", condition="not_ready", from_at=at(begin))]

    told = Told(snap(0, condition=lost(-30)), snap(1, condition=lost(-30)), snap(2, condition=lost(1.5)))
    assert told.of("condition", "from_at", "until_at") == [[(-30, None)], [], [(-30, 1.5), (1.5, None)]]


def test_a_quota_that_loses_its_limit_is_another_quota() -> None:
    def limit(minutes: float, nominal: float | None) -> list[Any]:
        return [Quota(queue="q", tenant="t", nominal_gpus=nominal, from_at=at(minutes))]

    told = Told(snap(0, quota=limit(0, 8.0)), snap(1, quota=limit(1, None)), snap(2, quota=limit(2, None)))
    assert told.of("quota", "nominal_gpus", "from_at", "until_at")[1:] == [[(8, 0, 1), (None, 1, None)], []]


def a_wait(begin: float, cause: str = "quota", message: str = "m", **more: Any) -> Wait:
    return Wait(workload_id="w", from_at=at(begin), cause=cause, message=message, **more)


def test_a_wait_changes_with_its_cause_and_not_with_its_words() -> None:
    told = Told(
        snap(0, wait=[a_wait(-5)]),
        snap(1, wait=[a_wait(-5, message="0/9 nodes")]),
        snap(2, wait=[a_wait(-5, "topology")]),
        snap(3, wait=[]),
    )
    columns = ("cause", "message", "from_at", "until_at")
    assert told.of("wait", *columns) == [
        [("quota", "m", -5, None)],
        [("quota", "0/9 nodes", -5, None)],
        [("quota", "0/9 nodes", -5, 2), ("topology", "m", 2, None)],
        [("topology", "m", 2, 3)],
    ]


def test_a_very_long_message_is_cut_and_costs_no_row() -> None:
    told = Told(snap(0, wait=[a_wait(0, message="\u7f3a" * 5000)]), snap(1, wait=[a_wait(0, message="\u7f3a" * 6000)]))
    assert [[len(words) for (words,) in rows] for rows in told.of("wait", "message")] == [[1000], []]


def test_a_wait_that_was_over_when_it_was_listed_is_stored_once_as_it_is() -> None:
    done = a_wait(-9, until_at=at(-3))
    told = Told(snap(0, wait=[done]), snap(1, wait=[done]), snap(2, wait=[]))
    assert told.of("wait", "from_at", "until_at") == [[(-9, -3)], [], []]


def test_a_pod_is_stored_again_every_five_minutes_so_that_it_does_not_seem_gone() -> None:
    told = Told(*(snap(minute, pod=[a_pod(minute)]) for minute in range(11)))
    assert [minute for minute, rows in enumerate(told.of("pod", "seen_at")) if rows] == [0, 5, 10]


def test_a_pod_that_vanishes_ends_and_one_that_had_ended_is_left_alone() -> None:
    over = a_pod(0, "done", phase="Succeeded", ended_at=at(-1))
    told = Told(snap(0, pod=[a_pod(0), over]), snap(1, pod=[]))
    assert told.of("pod", "uid", "ended_at", "seen_at")[1] == [("u", 1, 1)]


def test_of_a_partial_look_only_what_could_be_seen_ends() -> None:
    part = SnapshotScope(namespaces=("a",), denied=(("pods", "forbidden"),))
    pods = [a_pod(0), a_pod(0, "v", namespace="b")]
    works = [a_workload(), a_workload("x", namespace="b")]
    waits = [a_wait(0), replace(a_wait(0), workload_id="x")]
    told = Told(snap(0, pod=pods, workload=works, wait=waits), snap(1, part, pod=[], workload=[], wait=[]))
    assert told.of("pod", "uid")[1] == [("u",)]
    assert told.of("workload", "workload_id")[1] == [("w",)]
    assert told.of("wait", "workload_id")[1] == [("w",)]
    told.feed(snap(2, pod=[], workload=[], wait=[]))
    assert [told.of(name, key)[2] for name, key in (("pod", "uid"), ("workload", "workload_id"))] == [
        [("v",)],
        [("x",)],
    ]


def test_a_queue_ends_where_its_namespace_could_be_seen() -> None:
    def seen(minutes: float, names: str, *namespaces: str) -> SchedulerSnapshot:
        queues = [Queue(queue=name, tenant="t") for name in names]
        quotas = [Quota(queue=name, tenant="t", nominal_gpus=8.0, from_at=at(minutes)) for name in names]
        scope = SnapshotScope(namespaces=namespaces, denied=(("pods", "forbidden"),) if namespaces else ())
        return snap(minutes, scope, queue=queues, quota=quotas)

    told = Told(
        seen(0, "abc"),
        seen(1, "ab", "a", "b"),  # c may be in a namespace that cannot be seen now
        seen(2, "a", "a", "b"),  # b was deleted
        seen(3, "a", "a", "b"),
        seen(4, "a", "a", "b", "c"),  # where c was can be seen again, and it is not there
    )
    assert told.of("queue", "queue", "status")[1:] == [[], [("b", "closed")], [], [("c", "closed")]]
    assert told.of("quota", "queue", "until_at")[1:] == [[], [("b", 2)], [], [("c", 4)]]
    told.book = SnapshotBook.learnt("k", INTERVAL, at(4), {name: told.rows[0][name] for name in ("queue", "quota")})
    assert told.feed(seen(5, "a", "a", "b")).keys() == {"quality_event"}


def test_a_workload_that_vanishes_has_ended_and_how_is_not_guessed() -> None:
    waiting = a_workload("p", status="pending", pending_cause="quota", pending_reason="no quota")
    ran = a_workload("r", started_at=AT)
    told = Told(snap(0, workload=[waiting, ran, a_workload("f", status="finished")]), snap(1, workload=[]))
    ended = told.of("workload", "workload_id", "status", "ended_at", "pending_cause")[1]
    assert sorted(ended) == [("p", "cancelled", 1, None), ("r", "unknown", 1, None)]


def test_a_queue_that_vanishes_is_closed_once() -> None:
    told = Told(snap(0, queue=[Queue(queue="q", tenant="t")]), snap(1, queue=[]), snap(2, queue=[]))
    assert told.of("queue", "queue", "status") == [[("q", "open")], [("q", "closed")], []]


def test_an_allocation_that_vanishes_has_ended() -> None:
    held = Allocation(allocation_id="x", workload_id="w", pod="p", node="n", gpu_uuid="G", share=1.0, started_at=AT)
    told = Told(snap(0, allocation=[held]), snap(1, allocation=[]))
    assert told.of("allocation", "ended_at") == [[(None,)], [(1,)]]


@pytest.mark.parametrize(("later", "seconds"), [(1, 60), (3, 180), (90, 180)])
def test_a_queues_state_holds_until_the_next_look_but_not_for_ever(later: float, seconds: float) -> None:
    told = Told(snap(0, queue_state=[a_state(0)]), snap(later, queue_state=[a_state(later, 6)]))
    assert told.of("queue_state", "ts", "running_gpus", "duration_seconds") == [[], [(0, 4, seconds)]]


def test_an_event_is_stored_once() -> None:
    begun = WorkloadEvent(workload_id="w", ts=at(-1), kind="started")
    told = Told(snap(0, workload_event=[begun]), snap(1, workload_event=[begun]))
    assert told.of("workload_event", "kind", "ts") == [[("started", -1)], []]


def test_what_could_not_be_seen_is_told_once_an_hour() -> None:
    part = SnapshotScope(denied=(("pods", "forbidden"),))
    told = Told(*(snap(minutes, part) for minutes in (10, 11, 59, 60, 61)))
    assert told.of("quality_event", "ts", "subject", "kind", "detail") == [
        [(0, "pods", "not_permitted", "forbidden")],
        [],
        [],
        [(60, "pods", "not_permitted", "forbidden")],
        [],
    ]


@pytest.mark.parametrize("minutes", [-1, 0])
def test_a_snapshot_that_comes_late_changes_nothing(minutes: float) -> None:
    told = Told(snap(0, node_state=[state(0)]), snap(minutes, node_state=[state(minutes, 6)], pod=[]))
    assert told.rows[1] == {}
    assert told.feed(snap(1, node_state=[state(1)])) == {}
