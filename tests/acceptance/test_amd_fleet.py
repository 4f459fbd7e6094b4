"""A fleet of MI300X, whole and divided, read from its exporters' pages alone: it closes to physical cards.

Nobody declares an inventory and no scheduler speaks. A card as eight partitions (cpx) or two (dpx) is one card, of
which each partition is its part.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import polars as pl
import pytest

from collector.mapping.file import load
from collector.mapping.source import MappedTarget
from gpuledger.model import Window
from gpuledger.simulate import FleetSpec, Simulation, simulate
from tests.acceptance.fleets import check_parts, fill, observations, spans_of
from warehouse import Warehouse
from warehouse.ledger import AUDITS

pytestmark = pytest.mark.slow

HOURS, CARDS = 2, 16


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulate(FleetSpec(nodes=2, days=1, seed=5, scenario="amd", tells_pods=True))


@pytest.fixture(scope="module")
def window(simulation) -> Window:
    return Window(simulation.spec.start_at, simulation.spec.start_at + timedelta(hours=HOURS))


@pytest.fixture(scope="module")
def house(simulation, window) -> Iterator[Warehouse]:
    with Warehouse.open(None) as opened:
        seen = observations(simulation, lambda _: MappedTarget(load("amd"), interval_seconds=60), HOURS * 60)
        fill(opened, simulation, seen, window)
        yield opened


@pytest.fixture(scope="module")
def spans(house) -> pl.DataFrame:
    return spans_of(house)


def test_it_closes_to_physical_cards(simulation, house, window, spans) -> None:
    for name in AUDITS:
        assert house.query(name, from_at=window.from_at, to_at=window.to_at).num_rows == 0, name
    by_card = spans.group_by("gpu_uuid").agg(pl.col("gpu_hours").sum())
    assert set(by_card["gpu_uuid"]) == {card.gpu_uuid for card in simulation.fleet.cards}
    assert by_card["gpu_hours"].to_list() == pytest.approx([float(HOURS)] * CARDS, abs=1e-9)
    rows = house.query("ledger_by", by="state", from_at=window.from_at, to_at=window.to_at).to_pylist()
    assert sum(row["gpu_hours"] for row in rows) == pytest.approx(float(HOURS * CARDS), abs=1e-9)


def test_each_pod_has_the_part_of_its_card_that_it_held(simulation, window, spans) -> None:
    assert check_parts(simulation, window, spans) == {1 / 8, 1 / 2, 1.0}


def test_partitions_without_profiling_are_active_and_not_graded(spans) -> None:
    """Whole cards say SM activity; of a partition only its dies' utilization is known."""
    held = spans.filter(pl.col("pod") != "")
    parts, whole = held.filter(pl.col("slice_id") != ""), held.filter(pl.col("slice_id") == "")
    hours = dict(whole.group_by("state").agg(pl.col("gpu_hours").sum()).iter_rows())
    assert hours["alloc_productive"] + hours["alloc_low"] > 0.9 * sum(hours.values())
    assert set(whole.filter(pl.col("state") == "alloc_productive")["basis"]) <= {"sm_active", "sm_active+power"}
    states = dict(parts.group_by("state").agg(pl.col("gpu_hours").sum()).iter_rows())
    assert states["alloc_ungraded"] > 0.9 * sum(states.values())
    assert not {"alloc_productive", "alloc_low"} & set(states)
