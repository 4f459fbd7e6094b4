"""What a scheduler that is read says of nodes: of those that it lists, and nothing of others or of the time before."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from gpuledger.model import Asset, NodeState, SchedulerNode, Window
from gpuledger.testing import FakeClock
from tests.warehouse.test_holds import AT, at, put
from warehouse import Warehouse


@pytest.fixture
def house() -> Iterator[Warehouse]:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=2))) as opened:
        nodes = {"a": "n", "b": "m"}
        found = [
            Asset(gpu_uuid=x, node=n, model="H100", status="in_service", from_at=at(-60)) for x, n in nodes.items()
        ]
        put(opened, "asset", found)
        yield opened


def states(house: Warehouse) -> set[tuple[str, str, str, float]]:
    house.build_ledger(Window(at(0), at(120)), until_at=at(120))
    with house.reading() as cursor:
        rows = cursor.execute(
            "select gpu_uuid, state, cause, sum(gpu_hours) from state_span group by all order by all"
        ).fetchall()
    return {(card, state, cause, round(hours, 6)) for card, state, cause, hours in rows}


@pytest.mark.parametrize("scheduler", ["kueue", "slurm/eu", "kubernetes"])
def test_a_scheduler_that_is_read_from_now_on_takes_no_hours_from_before_and_no_other_clusters(
    house: Warehouse, scheduler: str
) -> None:
    node: dict[str, Any] = {"scheduler": scheduler, "node": "n", "from_at": at(60)}
    held: dict[str, Any] = {"resource": "gpu", "capacity": 1.0, "allocated": 0.0, "free": 1.0}
    put(house, "scheduler_node", [SchedulerNode(gpu_count=1, until_at=at(90), **node)])
    put(house, "node_state", [NodeState(**node, **held)])
    assert states(house) == {
        ("a", "free_usable", "", 1.5),
        ("a", "unavailable", "not_in_scheduler", 0.5),
        ("b", "free_usable", "", 2),
    }


def test_records_that_are_sent_whole_speak_for_every_node(house: Warehouse) -> None:
    put(house, "scheduler_node", [SchedulerNode(scheduler="sent", node="n", gpu_count=1, from_at=at(0))])
    assert states(house) == {("a", "free_usable", "", 2), ("b", "unavailable", "not_in_scheduler", 2)}
