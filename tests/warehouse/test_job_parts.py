"""Jobs that run on several nodes: several pods of one name at once, requeued, and ids that are given again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from gpuledger.model import Asset, Pod, Workload
from gpuledger.testing import FakeClock
from tests.warehouse.test_hold_times import held
from tests.warehouse.test_holds import AT, at, put, sight
from warehouse import Warehouse

NODES = {"n1": [f"a{i}" for i in range(4)], "n2": [f"b{i}" for i in range(4)]}


@pytest.fixture
def house() -> Iterator[Warehouse]:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=40))) as opened:
        cards = [
            Asset(gpu_uuid=card, node=node, status="in_service", from_at=at(-600), model="NVIDIA H100 80GB HBM3")
            for node, own in NODES.items()
            for card in own
        ]
        put(opened, "asset", cards)
        yield opened


def part(house: Warehouse, job: str, node: str, begin: float, end: float | None, *, run: str = "1.0") -> None:
    """The part of a Slurm job on one node: four GPUs."""
    rows = [
        Pod(
            uid=f"slurm/{job}@{run}/{node}",
            namespace="slurm",
            pod=job,
            node=node,
            workload_id=f"slurm/{job}@{run}",
            gpu_count=4.0,
            resource="gres_gpu",
            phase="Running" if end is None else "Succeeded",
            started_at=at(begin),
            ended_at=None if end is None else at(end),
            seen_at=at(begin if end is None else end),
        )
    ]
    put(house, "pod", rows)


def see(house: Warehouse, job: str, node: str, minutes: Sequence[float]) -> None:
    for card in NODES[node]:
        sight(house, card, job, minutes, namespace="slurm", node=node)


@pytest.mark.parametrize("nodes_seen", [(), ("n1",), ("n1", "n2")])
@pytest.mark.parametrize("edges", [[0, 120], [0, 60, 120]])
def test_a_job_of_two_nodes_holds_four_cards_of_each_seen_or_not(
    house: Warehouse, nodes_seen: tuple[str, ...], edges: list[int]
) -> None:
    for node in NODES:
        part(house, "800", node, 0, 90)
    for node in nodes_seen:
        see(house, "800", node, range(90))
    by_card = held(house, edges, "gpu_uuid")
    assert by_card == dict.fromkeys([*NODES["n1"], *NODES["n2"]], 1.5)
    with house.reading() as cursor:
        found = cursor.execute("select distinct workload_id from state_span where workload_id <> ''").fetchall()
    assert found == [("slurm/800@1.0",)]


def test_a_requeued_job_is_two_runs_and_nothing_between_them(house: Warehouse) -> None:
    """4 + 4 cards for 30 min, then 30 min of waiting, then 4 cards for 60 min."""
    for node in NODES:
        part(house, "801", node, 0, 30, run="1.0")
    part(house, "801", "n2", 60, 120, run="1.1")
    see(house, "801", "n1", range(30))
    see(house, "801", "n2", range(30))
    see(house, "801", "n2", range(60, 120))
    assert held(house, [0, 120]) == {"slurm/801@1.0": 4.0, "slurm/801@1.1": 4.0}


def test_a_requeued_job_whose_first_end_was_not_told_ends_where_the_second_begins(house: Warehouse) -> None:
    for node in NODES:
        part(house, "802", node, 0, None, run="1.0")
        part(house, "802", node, 10, 70, run="1.1")
    assert held(house, [0, 120]) == {"slurm/802@1.0": 1.333333, "slurm/802@1.1": 8.0}


def test_an_id_that_is_given_again_is_another_job(house: Warehouse) -> None:
    part(house, "133", "n1", -500, -440, run="1506994769.0")
    part(house, "133", "n2", 30, 120, run="1772438400.0")
    see(house, "133", "n1", range(-500, -440))
    see(house, "133", "n2", range(30, 120))
    assert held(house, [-540, 120]) == {"slurm/133@1506994769.0": 4.0, "slurm/133@1772438400.0": 6.0}


def test_what_a_scheduler_says_of_its_work_stands_before_what_was_made_of_pods(house: Warehouse) -> None:
    shape: dict[str, Any] = {"pod_count": 1, "num_gpu": 1, "gpu_milli": 1000, "cpu_milli": 0, "memory_mib": 0}
    shape["submitted_at"] = AT

    def queue_now() -> str | None:
        with house.reading() as cursor:
            found = cursor.execute("select queue from workload where workload_id = 'w'").fetchone()
        return found[0] if found else None

    put(house, "workload", [Workload(workload_id="w", queue="made of pods", **shape)])
    put(house, "workload", [Workload(workload_id="w", queue="told", scheduler="kueue", **shape)])
    assert queue_now() == "told"
    put(house, "workload", [Workload(workload_id="w", queue="made of pods", **shape)])
    assert queue_now() == "told"
    put(house, "workload", [Workload(workload_id="w", queue="told anew", scheduler="kueue", **shape)])
    assert queue_now() == "told anew"
