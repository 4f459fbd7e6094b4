"""Who held which card: sightings, what pods' records say beyond them, and pods that nobody saw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from gpuledger.model import RECORDS, Holding, Node, Pod, Reading, SchedulerNode, Tenant, Window, Workload, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse

AT = datetime(2026, 3, 2, 10, tzinfo=UTC)
BATCHES = count()
MINUTE = timedelta(minutes=1)
H100 = "NVIDIA H100 80GB HBM3"


@pytest.fixture
def house() -> Iterator[Warehouse]:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=2))) as opened:
        yield opened


def at(minutes: float) -> datetime:
    return AT + minutes * MINUTE


def put(house: Warehouse, record: str, rows: Sequence[Any]) -> None:
    table = to_table(record, rows)
    assert not house.ingest(record, table, f"{next(BATCHES)}").rejected


def cards(house: Warehouse, names: Sequence[str], *, hours: int = 1, node: str = "n", util: float = 0.9) -> None:
    """Readings of cards, every minute."""
    rows = [
        Reading(ts=at(i), node=node, gpu_uuid=name, source="dcgm", interval_seconds=60, gpu_util_ratio=util, model=H100)
        for name in names
        for i in range(hours * 60)
    ]
    put(house, "reading", rows)


def sight(house: Warehouse, card: str, pod: str, minutes: Sequence[float], **more: Any) -> None:
    """Pod seen on a card."""
    given = {"node": "n", "namespace": "t", "source": "dcgm", "share": 1.0, "interval_seconds": 60.0, **more}
    put(house, "holding", [Holding(ts=at(i), gpu_uuid=card, pod=pod, **given) for i in minutes])


def pod(house: Warehouse, name: str, begin: float, end: float | None = None, **more: Any) -> None:
    """A pod's record; one without an end was listed through the window."""
    given = {
        "uid": f"uid-{name}",
        "namespace": "t",
        "node": "n",
        "gpu_count": 1.0,
        "resource": "nvidia_com_gpu",
        "phase": "Running" if end is None else "Succeeded",
        "started_at": at(begin),
        "ended_at": None if end is None else at(end),
        "seen_at": at(120),
        **more,
    }
    put(house, "pod", [Pod(pod=name, **given)])


def hours(house: Warehouse, by: str, *, hours: float = 1) -> dict[str, float]:
    """GPU-hours by `by`."""
    window = Window(AT, AT + timedelta(hours=hours))
    assert house.build_ledger(window, until_at=window.to_at).violations == 0
    with house.writing() as cursor:
        rows = cursor.execute(
            "select workload_id, tenant, state, basis, gpu_hours, gpu_uuid, queue, stage, kind from state_span"
        )
        names = [column[0] for column in rows.description]
        found: dict[str, float] = {}
        for row in rows.fetchall():
            named = dict(zip(names, row, strict=True))
            found[named[by]] = found.get(named[by], 0) + named["gpu_hours"]
    return {name: round(value, 6) for name, value in found.items()}


def test_a_completed_pod_stops_holding_although_it_is_still_shown(house: Warehouse) -> None:
    cards(house, ["a"], hours=2)
    sight(house, "a", "task", range(5, 120))
    pod(house, "task", 5, 65)
    assert hours(house, "workload_id", hours=2) == {"t/task": 1.0, "": 1.0}


def test_without_a_pods_record_sightings_alone_count(house: Warehouse) -> None:
    cards(house, ["a"], hours=2)
    sight(house, "a", "task", range(5, 120))
    assert hours(house, "workload_id", hours=2) == {"t/task": 1.916667, "": 0.083333}


def test_a_gap_of_two_missed_sightings_is_bridged(house: Warehouse) -> None:
    cards(house, ["a"])
    sight(house, "a", "p", [*range(20), *range(22, 60)])
    assert hours(house, "workload_id") == {"t/p": 1.0}


def test_a_longer_gap_is_free_without_a_pods_record(house: Warehouse) -> None:
    cards(house, ["a"])
    sight(house, "a", "p", [*range(20), *range(40, 60)])
    assert hours(house, "workload_id") == {"t/p": 0.666667, "": 0.333333}


def test_a_longer_gap_is_held_where_the_pod_ran_throughout(house: Warehouse) -> None:
    cards(house, ["a"])
    sight(house, "a", "p", [*range(5, 20), *range(40, 50)])
    pod(house, "p", 0)
    assert hours(house, "workload_id") == {"t/p": 1.0}


def test_the_next_pod_on_the_card_ends_the_bridge(house: Warehouse) -> None:
    cards(house, ["a"])
    sight(house, "a", "p", range(20))
    sight(house, "a", "q", range(30, 60))
    pod(house, "p", 0)
    pod(house, "q", 10)
    assert hours(house, "workload_id") == {"t/p": 0.5, "t/q": 0.5}


def test_labels_that_linger_neither_hold_nor_end_a_bridge(house: Warehouse) -> None:
    cards(house, ["a"])
    sight(house, "a", "old", range(5, 40, 5), share=1.0)
    sight(house, "a", "new", [*range(12, 20), *range(45, 60)])
    pod(house, "old", 0, 10)
    pod(house, "new", 10)
    assert hours(house, "workload_id") == {"t/old": 0.166667, "t/new": 0.833333}


def test_a_pod_of_the_same_name_that_came_later_is_another_run_of_it(house: Warehouse) -> None:
    cards(house, ["a"], hours=2)
    sight(house, "a", "web-0", range(120))
    pod(house, "web-0", 0, 30)
    pod(house, "web-0", 60, uid="second")
    assert hours(house, "workload_id", hours=2) == {"t/web-0": 1.5, "": 0.5}


def test_a_pod_that_was_missing_from_a_page_and_is_listed_again_had_not_ended(house: Warehouse) -> None:
    cards(house, ["a"])
    sight(house, "a", "p", range(60))
    pod(house, "p", 0, phase="Running", ended_at=at(10), seen_at=at(60))
    assert hours(house, "workload_id") == {"t/p": 1.0}


def test_a_flapping_label_of_one_of_two_pods_leaves_both_their_halves(house: Warehouse) -> None:
    cards(house, ["a"])
    for minute in range(60):
        names = ["p", "q"] if minute % 10 < 7 else ["p"]
        for name in names:
            sight(house, "a", name, [minute], share=1 / len(names))
    pod(house, "p", 0)
    pod(house, "q", 0)
    assert hours(house, "workload_id") == {"t/p": 0.5, "t/q": 0.5}


def test_two_pods_of_a_divided_card_hold_it_in_turn_and_together(house: Warehouse) -> None:
    cards(house, ["a"])
    sight(house, "a", "p", range(20))
    sight(house, "a", "p", range(20, 40), share=0.5)
    sight(house, "a", "q", range(20, 40), share=0.5)
    sight(house, "a", "q", range(40, 60))
    assert hours(house, "workload_id") == {"t/p": 0.5, "t/q": 0.5}


def test_the_workload_gives_tenant_queue_stage_and_kind(house: Warehouse) -> None:
    cards(house, ["a"])
    sight(house, "a", "llm-worker-0", range(60))
    pod(house, "llm-worker-0", 0, workload_id="t/llm")
    shape: dict[str, Any] = {"pod_count": 1, "num_gpu": 1, "gpu_milli": 1000, "cpu_milli": 0, "memory_mib": 0}
    whose: dict[str, Any] = {"tenant": "nlp", "queue": "gold", "stage": "pretraining", "kind": "training"}
    put(house, "workload", [Workload(workload_id="t/llm", submitted_at=AT, **shape, **whose)])
    assert hours(house, "workload_id") == {"t/llm": 1.0}
    assert (hours(house, "tenant"), hours(house, "queue")) == ({"nlp": 1.0}, {"gold": 1.0})
    assert (hours(house, "stage"), hours(house, "kind")) == ({"pretraining": 1.0}, {"training": 1.0})


def test_a_workload_of_a_stranger_keeps_its_queue_and_is_unowned_in_the_tree(house: Warehouse) -> None:
    put(house, "tenant", [Tenant(tenant="research", from_at=AT)])
    cards(house, ["a"])
    sight(house, "a", "p", range(60))
    pod(house, "p", 0, workload_id="t/w")
    shape: dict[str, Any] = {"pod_count": 1, "num_gpu": 1, "gpu_milli": 1000, "cpu_milli": 0, "memory_mib": 0}
    put(house, "workload", [Workload(workload_id="t/w", submitted_at=AT, tenant="t", queue="gold", **shape)])
    assert (hours(house, "tenant"), hours(house, "queue")) == ({"t": 1.0}, {"gold": 1.0})
    rows = house.query("ledger_tree", level=1, from_at=AT, to_at=at(60)).to_pylist()
    assert [(row["tenant"], row["gpu_hours"]) for row in rows] == [("(unowned)", pytest.approx(1.0))]


def test_steps_of_a_slurm_job_are_the_job(house: Warehouse) -> None:
    cards(house, ["a", "b", "c"])
    for card, name in (("a", "123"), ("b", "123.0"), ("c", "124_7.batch")):
        sight(house, card, name, range(60), namespace="slurm")
    assert hours(house, "workload_id") == {"slurm/123": 2.0, "slurm/124_7": 1.0}


def test_a_pod_that_nobody_saw_holds_cards_of_its_node_without_telemetry(house: Warehouse) -> None:
    cards(house, ["a", "b", "c", "d"])
    sight(house, "b", "seen", range(60))
    pod(house, "seen", 0)
    pod(house, "unseen", 30, gpu_count=2.0)
    assert hours(house, "workload_id") == {"t/seen": 1.0, "t/unseen": 1.0, "": 2.0}
    assert hours(house, "basis")["card_not_known"] == 1.0
    assert hours(house, "state")["alloc_unknown"] == 1.0
    assert hours(house, "gpu_uuid") == dict.fromkeys("abcd", 1.0)


def test_pods_that_ask_for_all_that_a_node_has_are_on_all_of_it(house: Warehouse) -> None:
    cards(house, ["a", "b"])
    pod(house, "whole", 0, gpu_count=2.0)
    assert hours(house, "workload_id") == {"t/whole": 2.0}
    assert hours(house, "state") == {"alloc_ungraded": 2.0}


def test_unseen_pods_never_hold_more_than_the_node_has(house: Warehouse) -> None:
    cards(house, ["a", "b"])
    pod(house, "first", 0, gpu_count=1.0)
    pod(house, "second", 1, gpu_count=4.0)
    assert hours(house, "workload_id") == {"t/first": 1.0, "t/second": 0.983333, "": 0.016667}


def test_an_unseen_pod_holds_no_longer_than_it_is_listed(house: Warehouse) -> None:
    cards(house, ["a", "b"])
    pod(house, "p", 0, seen_at=at(15))
    assert hours(house, "workload_id")["t/p"] == 0.5


def test_slices_and_shares_of_pods_that_nobody_saw_are_left_out(house: Warehouse) -> None:
    cards(house, ["a"])
    for number, resource in enumerate(("nvidia_com_mig_1g_10gb", "nvidia_com_gpu_shared")):
        pod(house, f"p{number}", 0, resource=resource)
    assert hours(house, "workload_id") == {"": 1.0}


def test_allocations_of_a_node_beat_sightings_and_pods(house: Warehouse) -> None:
    cards(house, ["a", "b"])
    sight(house, "a", "p", range(60))
    pod(house, "q", 0)
    held = {"allocation_id": "1", "workload_id": "job", "pod": "x", "node": "n", "gpu_uuid": "b", "share": 1.0}
    put(house, "allocation", [RECORDS["allocation"].cls(**held, started_at=AT, ready_at=AT)])
    assert hours(house, "workload_id") == {"job": 1.0, "": 1.0}


def coverage(house: Warehouse, steps: Sequence[int], until: int) -> float:
    """Of a card that is held for an hour and read at these seconds, by a source that does not say how often."""
    rows = [
        Reading(ts=AT + timedelta(seconds=s), node="n", gpu_uuid="a", source="remote_write", gpu_util_ratio=0.9)
        for s in steps
    ]
    put(house, "reading", rows)
    seen = [
        Holding(ts=row.ts, node="n", gpu_uuid="a", namespace="t", pod="p", source="remote_write", share=1.0)
        for row in rows
    ]
    put(house, "holding", seen)
    pod(house, "p", 0)
    assert hours(house, "workload_id", hours=until) == {"t/p": until}
    rates = house.query("ledger_rates", from_at=AT, to_at=AT + timedelta(hours=until)).to_pylist()
    return float(next(row["value"] for row in rows_of(rates, "coverage")))


def rows_of(rates: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [row for row in rates if row["name"] == name]


@pytest.mark.parametrize("seconds", [15, 60])
def test_the_spacing_of_readings_says_how_often_a_source_reads(house: Warehouse, seconds: int) -> None:
    assert coverage(house, range(0, 3600, seconds), 1) == pytest.approx(1.0)


def test_half_of_the_reads_missing_is_half_covered(house: Warehouse) -> None:
    assert coverage(house, range(0, 3600, 15), 2) == pytest.approx(0.5)


def test_a_source_that_reads_every_five_minutes_covers_them(house: Warehouse) -> None:
    assert coverage(house, range(0, 3600, 300), 1) == pytest.approx(1.0)


def test_one_reading_stands_for_a_minute(house: Warehouse) -> None:
    assert coverage(house, [0], 1) == pytest.approx(1 / 60)


def test_kubernetes_speaks_for_its_own_nodes_only_and_from_the_begin(house: Warehouse) -> None:
    cards(house, ["a"])
    cards(house, ["b"], node="other")
    put(house, "scheduler_node", [SchedulerNode(scheduler="kubernetes/c", node="n", gpu_count=1, from_at=at(30))])
    assert hours(house, "state") == {"free_usable": 2.0}
    put(house, "scheduler_node", [SchedulerNode(scheduler="kubernetes/c", node="n", gpu_count=0, from_at=at(45))])
    assert hours(house, "state") == {"free_usable": 1.75, "unavailable": 0.25}


def test_a_node_whose_capacity_is_known_keeps_its_hours(house: Warehouse) -> None:
    cards(house, ["a"])
    put(house, "node", [Node(node="n", gpu_count=1, from_at=AT)])
    assert hours(house, "state") == {"free_usable": 1.0}


def claims(house: Warehouse) -> list[tuple[Any, ...]]:
    rows = house.query("double_claims", from_at=AT, to_at=AT + timedelta(hours=1)).to_pylist()
    return [(row["gpu_uuid"], row["from_at"], row["until_at"], row["claims"]) for row in rows]


def test_two_allocations_of_one_card_are_named_and_are_one_card(house: Warehouse) -> None:
    cards(house, ["a"])
    for name, begin, end in (("x", 0, 40), ("y", 20, 60)):
        held = {"workload_id": name, "pod": name, "node": "n", "gpu_uuid": "a", "share": 1.0}
        times = {"started_at": at(begin), "ready_at": at(begin), "ended_at": at(end)}
        put(house, "allocation", [RECORDS["allocation"].cls(allocation_id=name, **held, **times)])
    assert hours(house, "workload_id") == {"x": 0.5, "y": 0.5}
    assert claims(house) == [("a", at(20), at(40), 2)]


def test_halves_of_a_card_are_no_double_claim(house: Warehouse) -> None:
    for name in ("x", "y"):
        held = {"workload_id": name, "pod": name, "node": "n", "gpu_uuid": "a", "share": 0.5}
        put(house, "allocation", [RECORDS["allocation"].cls(allocation_id=name, **held, started_at=AT)])
    assert claims(house) == []


@pytest.mark.parametrize(("offered", "found"), [(1, True), (4, False)])
def test_two_pods_seen_on_a_card_that_is_not_divided_are_named(house: Warehouse, offered: int, *, found: bool) -> None:
    put(house, "asset", [RECORDS["asset"].cls(gpu_uuid="a", node="n", status="in_service", from_at=AT)])
    put(house, "node", [Node(node="n", gpu_count=offered, from_at=AT)])
    for name in ("p", "q"):
        pod(house, name, 0)
        sight(house, "a", name, [*range(10, 20), 40], share=0.5)
    assert claims(house) == ([("a", at(10), at(40), 2)] if found else [])


def test_one_instant_with_two_pods_is_a_handover(house: Warehouse) -> None:
    put(house, "asset", [RECORDS["asset"].cls(gpu_uuid="a", node="n", status="in_service", from_at=AT)])
    put(house, "node", [Node(node="n", gpu_count=1, from_at=AT)])
    for name, minutes in (("p", range(31)), ("q", range(30, 60))):
        pod(house, name, 0)
        sight(house, "a", name, minutes, share=0.5 if 30 in minutes else 1.0)
    assert claims(house) == []
