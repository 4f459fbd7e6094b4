"""A fleet of NPUs, read from its exporters' pages alone: it closes to physical NPUs, and vNPUs are parts of theirs.

Nobody declares an inventory and no scheduler speaks: what exists and who holds it stands on the pages; pods' own
records say when each ran.
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

HOURS, NPUS = 4, 16


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulate(FleetSpec(nodes=2, days=1, seed=5, scenario="npu", tells_pods=True))


@pytest.fixture(scope="module")
def window(simulation) -> Window:
    return Window(simulation.spec.start_at, simulation.spec.start_at + timedelta(hours=HOURS))


@pytest.fixture(scope="module")
def house(simulation, window) -> Iterator[Warehouse]:
    with Warehouse.open(None) as opened:
        seen = observations(
            simulation, lambda node: MappedTarget(load("ascend"), node=node, interval_seconds=60), HOURS * 60
        )
        fill(opened, simulation, seen, window)
        yield opened


@pytest.fixture(scope="module")
def spans(house) -> pl.DataFrame:
    return spans_of(house)


def test_it_closes_to_physical_npus(simulation, house, window, spans) -> None:
    for name in AUDITS:
        assert house.query(name, from_at=window.from_at, to_at=window.to_at).num_rows == 0, name
    by_card = spans.group_by("gpu_uuid").agg(pl.col("gpu_hours").sum(), pl.col("model").unique())
    assert set(by_card["gpu_uuid"]) == {card.gpu_uuid for card in simulation.fleet.cards}
    assert by_card["gpu_hours"].to_list() == pytest.approx([float(HOURS)] * NPUS, abs=1e-9)
    rows = house.query("ledger_by", by="state", from_at=window.from_at, to_at=window.to_at).to_pylist()
    assert sum(row["gpu_hours"] for row in rows) == pytest.approx(float(HOURS * NPUS), abs=1e-9)


def test_each_pod_has_the_part_of_its_npu_that_it_held(simulation, window, spans) -> None:
    """An eighth of a chip for an hour is an eighth of an NPU-hour."""
    assert check_parts(simulation, window, spans) >= {1 / 8, 1 / 4, 1 / 2, 1.0}


def test_work_is_graded_by_ai_cores_and_what_nobody_holds_is_free(spans) -> None:
    hours = dict(spans.group_by("state").agg(pl.col("gpu_hours").sum()).iter_rows())
    assert hours["alloc_productive"] > NPUS * HOURS / 2
    assert not {"alloc_low", "alloc_ungraded", "alloc_stalled"} & set(hours)
    parts = spans.filter((pl.col("slice_id") != "") & (pl.col("state") == "alloc_productive"))
    assert set(parts["basis"]) == {"core_active"}
    assert hours["free_usable"] + hours.get("free_stranded", 0) > 0
