"""How long work had run that was put off: since its last start, of the pod that had to go."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from gpuledger.model import Pod, Workload, WorkloadEvent
from gpuledger.testing import FakeClock
from tests.warehouse.test_holds import AT, at, put
from warehouse import Warehouse

SHAPE: dict[str, Any] = {"num_gpu": 2, "gpu_milli": 1000, "cpu_milli": 0, "memory_mib": 0}


@pytest.fixture
def house() -> Iterator[Warehouse]:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=2))) as opened:
        put(opened, "workload", [Workload(workload_id="w", submitted_at=at(-60), pod_count=4, **SHAPE)])
        yield opened


def happened(house: Warehouse, *events: tuple[str, float] | tuple[str, float, str]) -> None:
    rows = [WorkloadEvent(workload_id="w", kind=kind, ts=at(when), pod="".join(pod)) for kind, when, *pod in events]
    put(house, "workload_event", rows)


def ran(house: Warehouse) -> list[tuple[Any, ...]]:
    """(kind, pod, GPUs, hours, GPU-hours) of each, the first event first."""
    found = house.query("preemptions", from_at=at(0), to_at=at(600)).to_pylist()
    named = ("kind", "pod", "gpus", "ran_hours", "ran_gpu_hours")
    return [tuple(row[name] for name in named) for row in reversed(found)]


def test_work_that_had_not_begun_again_lost_nothing(house: Warehouse) -> None:
    happened(house, ("started", -30), ("preempted", 30), ("requeued", 31), ("evicted", 150), ("started", 160))
    happened(house, ("preempted", 190))
    assert ran(house) == [("preempted", "", 8, 1, 8), ("evicted", "", 8, None, None), ("preempted", "", 8, 0.5, 4)]


def test_what_is_told_twice_of_one_moment_had_run_as_long(house: Warehouse) -> None:
    happened(house, ("started", 0), ("preempted", 60), ("evicted", 60))
    assert [one[3] for one in ran(house)] == [1, 1]


def test_a_pod_that_had_to_go_is_no_more_than_that_pod(house: Warehouse) -> None:
    happened(house, ("started", 0), ("preempted", 60, "a"), ("preempted", 90, "b"))
    pods = [Pod(uid="b", namespace="t", pod="b", workload_id="w", started_at=at(30), seen_at=at(60))]
    put(house, "pod", pods)
    assert ran(house) == [("preempted", "a", 2, 1, 2), ("preempted", "b", 2, 1, 2)]
