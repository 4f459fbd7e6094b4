"""Who holds a card while the source that says so fails: the last one that was seen, until it answers again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from gpuledger.model import SourceRead
from gpuledger.testing import FakeClock
from tests.warehouse.test_hold_times import assets, held
from tests.warehouse.test_holds import AT, at, put, sight
from warehouse import Warehouse


@pytest.fixture
def house() -> Iterator[Warehouse]:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=40))) as opened:
        yield opened


def read(house: Warehouse, minutes: Iterable[int], *, ok: bool, node: str = "n", source: str = "dcgm") -> None:
    common: dict[str, Any] = {"node": node, "source": source, "scope": "device", "ok": ok, "interval_seconds": 60}
    error = None if ok else "HTTP 500"
    put(house, "source_read", [SourceRead(ts=at(minute), error=error, **common) for minute in minutes])


@pytest.mark.parametrize("edges", [[0, 60], [0, 30, 60], [0, 20, 40, 60]])
@pytest.mark.parametrize(
    ("failed", "answers", "seen_again", "hours"),
    [
        (range(30, 45), range(45, 60), range(45, 60), 1.0),
        (range(30, 45), range(45, 60), range(0), 0.75),
        (range(30, 60), range(0), range(0), 1.0),
        (range(0), range(0), range(0), 0.5),
        (range(0), range(30, 60), range(0), 0.5),
        (range(40, 50), range(50, 60), range(0), 0.5),
    ],
    ids=["comes back", "gone when it answers", "never answers", "silence", "answers", "fails later"],
)
def test_a_failed_read_says_nothing_of_the_holder(house, edges, failed, answers, seen_again, hours):
    assets(house, "a")
    sight(house, "a", "p", range(30), source="dcgm")
    sight(house, "a", "p", seen_again, source="dcgm")
    read(house, [*range(30), *answers], ok=True)
    read(house, failed, ok=False)
    assert held(house, edges) == {"t/p": pytest.approx(hours, abs=1e-6)}


def test_a_page_that_speaks_for_all_nodes_is_read_under_its_own_name(house):
    assets(house, "a")
    sight(house, "a", "p", range(30), source="hami_scheduler", share=0.25, is_stated=True)
    read(house, range(30), ok=True, node="hami:9395", source="hami_scheduler")
    read(house, range(30, 60), ok=False, node="hami:9395", source="hami_scheduler")
    assert held(house, [0, 60]) == {"t/p": pytest.approx(0.25)}


def test_another_nodes_failure_is_its_own(house):
    assets(house, "a")
    sight(house, "a", "p", range(30), source="dcgm")
    read(house, range(60), ok=True)
    read(house, range(30, 60), ok=False, node="m")
    assert held(house, [0, 60]) == {"t/p": pytest.approx(0.5)}
