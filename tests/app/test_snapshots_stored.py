"""Snapshots into a warehouse: restarts, repeats and looks that see a part, with the rows that are there after them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from gpuledger.app.schedulers.feed import Feed
from gpuledger.model import NodeState, QueueState, Quota, Wait, to_table
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


def a_feed(api: Api, clock: FakeClock, name: str = "k") -> Feed:
    return Feed(Silent(name), api.service, clock, interval_seconds=60.0)


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
