"""Where pods are held when sightings contradict, lack or outnumber what records say, and how often sources look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from gpuledger.model import RECORDS, Asset, Holding, Window
from gpuledger.testing import FakeClock
from tests.warehouse.test_holds import AT, H100, at, cards, hours, pod, put, sight
from warehouse import Warehouse

SILENT: dict[str, Any] = {"source": "remote_write", "interval_seconds": None}
THREE_SEVENTHS = 3 / 7


@pytest.fixture
def house() -> Iterator[Warehouse]:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=40))) as opened:
        yield opened


def assets(house: Warehouse, *names: str) -> None:
    put(house, "asset", [Asset(gpu_uuid=n, node="n", status="in_service", from_at=at(-60), model=H100) for n in names])


def allocate(house: Warehouse, card: str, begin: float, end: float | None, node: str = "n") -> None:
    held = {"allocation_id": f"{card}{begin}", "workload_id": "job", "pod": "x", "node": node, "gpu_uuid": card}
    times = {"started_at": at(begin), "ended_at": None if end is None else at(end)}
    put(house, "allocation", [RECORDS["allocation"].cls(**held, share=1.0, **times)])


def held(house: Warehouse, edges: Sequence[float], by: str = "workload_id") -> dict[str, float]:
    """GPU-hours that were held, by workload or by card, built window by window between `edges` (minutes)."""
    for begin, end in pairwise(edges):
        assert house.build_ledger(Window(at(begin), at(end)), until_at=at(edges[-1])).violations == 0
    with house.writing() as cursor:
        rows = cursor.execute("select workload_id, gpu_uuid, gpu_hours from state_span where workload_id <> ''")
        found: dict[str, float] = {}
        for workload, card, spent in rows.fetchall():
            name = {"workload_id": workload, "gpu_uuid": card}[by]
            found[name] = found.get(name, 0) + spent
    return {name: round(value, 6) for name, value in found.items()}


HOURLY = [0, 60, 120, 180, 240]


@pytest.mark.parametrize("edges", [[0, 240], HOURLY])
def test_a_pod_of_one_gpu_that_moves_holds_one_at_a_time(house: Warehouse, edges: list[int]) -> None:
    assets(house, "a", "b")
    sight(house, "a", "p", range(60))
    sight(house, "b", "p", range(65, 240))
    pod(house, "p", 0, 240, seen_at=at(240))
    assert held(house, edges, "gpu_uuid") == {"a": 1.083333, "b": 2.916667}


def test_one_wrong_sighting_adds_nothing(house: Warehouse) -> None:
    assets(house, "a", "b")
    sight(house, "a", "p", range(240))
    sight(house, "b", "p", [100])
    pod(house, "p", 0, 240, seen_at=at(240))
    assert held(house, [0, 240], "gpu_uuid") == {"a": 4.0}


def test_a_pod_of_one_slice_that_moves_holds_one_slice_at_a_time(house: Warehouse) -> None:
    assets(house, "a")
    sight(house, "a", "p", range(30), slice_id="1", share=THREE_SEVENTHS)
    sight(house, "a", "p", range(40, 60), slice_id="2", share=THREE_SEVENTHS)
    pod(house, "p", 0, 60, resource="nvidia_com_mig_3g_40gb")
    assert held(house, [0, 60]) == {"t/p": 0.428571}


@pytest.mark.parametrize("seen", [1, 7])
def test_a_pod_that_is_seen_on_some_of_its_cards_holds_all(house: Warehouse, seen: int) -> None:
    names = [f"g{number}" for number in range(8)]
    assets(house, *names)
    for name in names[:seen]:
        sight(house, name, "p", range(60))
    pod(house, "p", 0, gpu_count=8.0)
    assert held(house, [0, 60]) == {"t/p": 8.0}


def test_what_a_pod_is_not_seen_on_is_on_cards_not_known(house: Warehouse) -> None:
    cards(house, ["a", "b", "c", "d"])
    sight(house, "b", "p", range(60))
    pod(house, "p", 0, gpu_count=2.0)
    assert hours(house, "workload_id") == {"t/p": 2.0, "": 2.0}
    assert hours(house, "basis")["card_not_known"] == 1.0


def test_an_allocation_of_long_ago_leaves_todays_sightings(house: Warehouse) -> None:
    allocate(house, "a", -20 * 1440, -19 * 1440)
    cards(house, ["a"])
    sight(house, "a", "p", range(60))
    assert hours(house, "workload_id") == {"t/p": 1.0}


def test_a_scheduler_speaks_for_all_cards_of_its_node_from_its_first_to_its_last_allocation(house: Warehouse) -> None:
    assets(house, "a", "b")
    allocate(house, "a", 0, 20)
    allocate(house, "a", 30, 40)
    for card in "ab":
        sight(house, card, f"p{card}", range(60))
        pod(house, f"p{card}", 0)
    assert hours(house, "workload_id") == {"job": 0.5, "t/pa": 0.333333, "t/pb": 0.333333, "": 0.833333}


def test_a_card_is_the_schedulers_whatever_the_node_is_called(house: Warehouse) -> None:
    allocate(house, "a", 0, 60, node="n.example.com")
    cards(house, ["a"])
    sight(house, "a", "p", range(60))
    assert hours(house, "workload_id") == {"job": 1.0}


def test_pods_that_share_a_card_go_on_to_share_it_while_one_is_not_shown(house: Warehouse) -> None:
    assets(house, "a")
    sight(house, "a", "x", range(20))
    sight(house, "a", "y", range(25, 40))
    for name, begin in (("x", 0), ("y", 25)):
        sight(house, "a", name, range(40, 60), share=0.5)
        pod(house, name, begin, resource="nvidia_com_gpu_shared")
    assert held(house, [0, 60]) == {"t/x": 0.708333, "t/y": 0.291667}


def test_pods_that_were_together_on_a_divided_card_for_a_moment_shared_it(house: Warehouse) -> None:
    """`y` starts at minute 20, when no label is shown, and `x` ends at 22: two minutes of halves, from records."""
    assets(house, "a")
    sight(house, "a", "x", range(20))
    for name, begin, end in (("x", 21, 22), ("y", 21, 22)):
        sight(house, "a", name, range(begin, end), share=0.5)
    sight(house, "a", "y", range(22, 60))
    pod(house, "x", 0, 22, resource="nvidia_com_gpu_shared")
    pod(house, "y", 20, resource="nvidia_com_gpu_shared")
    assert held(house, [0, 60]) == {"t/x": round(21 / 60, 6), "t/y": round(39 / 60, 6)}


def test_a_card_that_is_held_in_slices_is_held_through_them_alone(house: Warehouse) -> None:
    assets(house, "a")
    sight(house, "a", "w", range(60), slice_id="1", share=THREE_SEVENTHS)
    sight(house, "a", "v", range(60), slice_id="2", share=4 / 7)
    sight(house, "a", "w", [minute + 0.5 for minute in range(60)], source="old")
    assert held(house, [0, 60]) == {"t/v": 0.571429, "t/w": 0.428571}


def test_a_slice_that_is_made_anew_later_leaves_finished_hours(house: Warehouse) -> None:
    assets(house, "a")
    for minute in range(60):
        names = "xy" if minute % 4 else "x"
        for name in names:
            sight(house, "a", name, [minute], slice_id="1", share=THREE_SEVENTHS / len(names))
    for name in "xy":
        pod(house, name, 0, 60, resource="nvidia_com_mig_3g_20gb")
    sight(house, "a", "z", range(75, 120), slice_id="1")
    pod(house, "z", 75, 120, resource="nvidia_com_mig_7g_40gb")
    assert held(house, [0, 120]) == {"t/x": 0.214286, "t/y": 0.214286, "t/z": 0.75}


@pytest.mark.parametrize("edges", [[0, 360], [0, 60, 120, 180, 240, 300, 360]])
def test_a_slice_is_held_from_the_pods_start_however_late_it_is_seen(house: Warehouse, edges: list[int]) -> None:
    assets(house, "a")
    sight(house, "a", "p", range(245, 360), slice_id="1", share=THREE_SEVENTHS)
    pod(house, "p", 65, seen_at=at(360), resource="nvidia_com_mig_3g_40gb")
    assert held(house, edges) == {"t/p": 2.107143}


def test_a_card_that_was_seen_days_ago_is_still_the_pods(house: Warehouse) -> None:
    assets(house, "a", "b")
    sight(house, "b", "p", range(30))
    pod(house, "p", 0, seen_at=at(5760))
    assert held(house, [4320, 4380], "gpu_uuid") == {"b": 1.0}


def silent(house: Warehouse, steps: Sequence[float]) -> None:
    """Sightings at these minutes, of a source that does not say how often it looks."""
    given: dict[str, Any] = {"node": "n", "namespace": "t", "share": 1.0, **SILENT}
    put(house, "holding", [Holding(ts=at(step), gpu_uuid="a", pod="p", **given) for step in steps])


def test_two_exporters_a_moment_apart_are_one_run(house: Warehouse) -> None:
    assets(house, "a")
    silent(house, [number / 4 + offset for number in range(240) for offset in (0, 0.05)])
    assert held(house, [0, 60]) == {"t/p": 1.0}


@pytest.mark.parametrize("edges", [[0, 240], HOURLY])
@pytest.mark.parametrize("change", [120, 150])
@pytest.mark.parametrize("steps", [(5, 0.25), (0.25, 5)])
def test_a_source_that_looks_more_or_less_often_from_now_on_is_whole(
    house: Warehouse, steps: tuple[float, float], change: int, edges: list[int]
) -> None:
    assets(house, "a")
    before, after = steps
    first = [number * before for number in range(int(change / before))]
    silent(house, [*first, *(change + number * after for number in range(int((240 - change) / after)))])
    assert held(house, edges) == {"t/p": 4.0}
