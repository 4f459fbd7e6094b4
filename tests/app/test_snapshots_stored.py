"""Snapshots into a warehouse: restarts, repeats and looks that see a part, with the rows that are there after them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from gpuledger.app.schedulers.feed import Feed
from gpuledger.model import (
    Allocation,
    Condition,
    Node,
    NodeState,
    Pod,
    QueueState,
    Quota,
    SchedulerNode,
    Wait,
    Workload,
    to_table,
)
from gpuledger.ports import SchedulerSnapshot, SnapshotScope
from gpuledger.testing import FakeClock
from tests.app.conftest import NOW, Api

WHOLE = SnapshotScope()


def at(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


def snap(minutes: float, scope: SnapshotScope = WHOLE, **records: list[Any]) -> SchedulerSnapshot:
    tables = {record: to_table(record, rows) for record, rows in records.items()}
    return SchedulerSnapshot(taken_at=at(minutes), version=str(minutes), records=tables, scope=scope)


@dataclass
class Silent:
    """A reader that nobody asks: tests store snapshots themselves."""

    name: str = "k"
    cluster: str = "default"

    def snapshot(self) -> SchedulerSnapshot:
        raise AssertionError("nobody asks")


@pytest.fixture
def feed(api: Api, clock: FakeClock) -> Feed:
    return a_feed(api, clock)


def a_feed(api: Api, clock: FakeClock, name: str = "k", cluster: str = "default") -> Feed:
    return Feed(Silent(name, cluster), api.service, clock, interval_seconds=60.0)


def ask(api: Api, sql: str) -> list[tuple[Any, ...]]:
    with api.service.warehouse.reading() as cursor:
        rows = cursor.execute(sql).fetchall()
    return [
        tuple((one - NOW).total_seconds() / 60 if isinstance(one, datetime) else one for one in row) for row in rows
    ]


def fleet(minutes: float, allocated: float) -> dict[str, Any]:
    state: dict[str, Any] = {"capacity": 8.0, "allocatable": 8.0, "allocated": allocated, "free": 8 - allocated}
    return {
        "node_state": [NodeState(scheduler="k", node="n", resource="gpu", from_at=at(minutes), **state)],
        "quota": [Quota(queue="q", tenant="t", nominal_gpus=8.0, from_at=at(minutes))],
        "queue_state": [
            QueueState(ts=at(minutes), queue="q", tenant="t", duration_seconds=0.001, running_gpus=allocated)
        ],
        "wait": [Wait(workload_id="w", from_at=at(minutes), cause="quota")],
    }


def test_a_repeat_begins_nothing_anew_and_costs_no_refused_row(api: Api, feed: Feed, clock: FakeClock) -> None:
    feed.store(snap(0, **fleet(0, 2)))
    feed.store(snap(1, **fleet(1, 4)))
    for _ in range(4):
        clock.advance(60)
        feed.repeat()
    feed.store(snap(3.9, **fleet(3.9, 4)))  # it was taken before the last repeat, and comes after it
    assert ask(api, "select allocated, from_at from node_state order by from_at") == [(2, 0), (4, 1)]
    assert ask(api, "select from_at, until_at from quota") == [(0, None)]
    assert ask(api, "select from_at, until_at from wait") == [(0, None)]
    assert ask(api, "select sum(duration_seconds) from queue_state") == [(240,)]
    assert ask(api, "select record from batch where rejected_count > 0") == []


def a_pod(minutes: float, name: str = "u", namespace: str = "a") -> dict[str, Any]:
    """A pod that began at 0 and holds one card, listed at `minutes`."""
    shape: dict[str, Any] = {"pod_count": 1, "num_gpu": 1, "gpu_milli": 1000, "cpu_milli": 0, "memory_mib": 0}
    whose: dict[str, Any] = {"namespace": namespace, "workload_id": name}
    card: dict[str, Any] = {"gpu_uuid": f"GPU-{name}", "share": 1.0, "node": "n"}
    return {
        "workload": [Workload(submitted_at=NOW, scheduler="k", status="running", **whose, **shape)],
        "pod": [Pod(uid=name, pod=name, node="n", started_at=NOW, phase="Running", seen_at=at(minutes), **whose)],
        "allocation": [
            Allocation(allocation_id=f"{name}/GPU-{name}", workload_id=name, pod=name, started_at=NOW, **card)
        ],
    }


NOBODY: dict[str, Any] = {"workload": [], "pod": [], "allocation": []}


def test_what_an_allocation_held_ends_though_the_service_was_away(api: Api, clock: FakeClock) -> None:
    a_feed(api, clock).store(snap(0, **a_pod(0)))
    sent = Allocation(
        allocation_id="sent", workload_id="u", pod="u", node="n", gpu_uuid="GPU-2", share=1.0, started_at=NOW
    )
    api.service.ingest("allocation", to_table("allocation", [sent]), "b")
    clock.advance(7200)
    a_feed(api, clock).store(snap(120, **NOBODY))
    assert ask(api, "select allocation_id, ended_at from allocation order by 1") == [("sent", None), ("u/GPU-u", 3)]


def test_allocations_end_where_they_could_be_seen(api: Api, feed: Feed) -> None:
    part = SnapshotScope(namespaces=("a",), denied=(("pods", "forbidden"),))
    both = {name: a_pod(0)[name] + a_pod(0, "v", "b")[name] for name in NOBODY}
    feed.store(snap(0, **both))
    feed.store(snap(1, part, **NOBODY))
    assert ask(api, "select allocation_id, ended_at from allocation order by 1") == [("u/GPU-u", 1), ("v/GPU-v", None)]
    feed.store(snap(2, **NOBODY))
    assert ask(api, "select ended_at from allocation order by 1") == [(1,), (2,)]


def waiting(minutes: float, cause: str = "", begin: float = -5) -> SchedulerSnapshot:
    """One workload, which waits for `cause` since `begin` as its scheduler dates it, or does not wait."""
    wait = Wait(workload_id="u", from_at=at(begin), cause=cause or "quota")
    return snap(minutes, workload=a_pod(0)["workload"], wait=[wait] if cause else [])


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_cause_that_comes_back_under_an_old_date_takes_no_other_causes_time(
    api: Api, clock: FakeClock, is_restarted: bool
) -> None:
    """A scheduler that dates no reason but only its condition tells every cause with one date."""
    feed = a_feed(api, clock)
    told = [(0, "quota"), (1, "topology"), (2, ""), (3, "priority"), (4, "quota"), (5, "quota"), (6, "")]
    for minute, cause in told:
        feed = a_feed(api, clock) if is_restarted else feed
        feed.store(waiting(minute, cause))
    assert ask(api, "select cause, from_at, until_at from wait order by from_at") == [
        ("quota", -5, 1),
        ("topology", 1, 2),
        ("priority", 3, 4),
        ("quota", 4, 6),
    ]
    found = api.service.query("waits", from_at=at(-60), to_at=at(60)).to_pylist()
    assert {row["cause"]: round(row["wait_hours"] * 60, 6) for row in found} == {
        "quota": 8,
        "topology": 1,
        "priority": 1,
    }


def a_node(minutes: float, scheduler: str, cluster: str, *, is_drained: bool) -> SchedulerSnapshot:
    drain = Condition(subject_kind="node", subject="n", condition="drain", from_at=NOW)
    return snap(
        minutes,
        node=[Node(node="n", cluster=cluster, gpu_count=8, from_at=at(minutes))],
        scheduler_node=[SchedulerNode(scheduler=scheduler, node="n", gpu_count=8, from_at=at(minutes))],
        condition=[drain] if is_drained else [],
    )


def test_what_two_schedulers_say_of_one_node_stays_theirs_over_a_restart(api: Api, clock: FakeClock) -> None:
    """Slurm drained the node, Kubernetes did not; both books begin anew before either is told anything."""
    for minute in (0, 1, 2):
        kubernetes, slurm = a_feed(api, clock, "k"), a_feed(api, clock, "s", "eu")
        for feed in (kubernetes, slurm):
            feed._book = feed._learn()
        kubernetes.store(a_node(minute, "k", "default", is_drained=False))
        slurm.store(a_node(minute, "s/eu", "eu", is_drained=True))
    assert ask(api, "select source, from_at, until_at from condition") == [("s/eu", 0, None)]
