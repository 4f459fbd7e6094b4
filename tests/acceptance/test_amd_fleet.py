"""A fleet of MI300X, whole and divided, read from its exporters' pages alone: it closes to physical cards.

Nobody declares an inventory and no scheduler speaks. A card as eight partitions (cpx) or two (dpx) is one card, of
which each partition is its part.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import polars as pl
import pytest

from collector.devices.page import failure, parse
from collector.mapping.file import load
from collector.mapping.source import MappedTarget
from gpuledger.errors import SourceError
from gpuledger.model import Window, to_table
from gpuledger.simulate import FleetSpec, Simulation, simulate
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
    rows: dict[str, list[object]] = {"reading": [], "holding": [], "source_read": []}
    for host in simulation.fleet.hosts:
        target = MappedTarget(load("amd"), interval_seconds=60)
        for minute in range(HOURS * 60):
            at = simulation.spec.start_at + timedelta(minutes=minute)
            try:
                seen = parse(simulation.node_page(host.name, at), at, target)
            except SourceError as error:
                seen = failure(target, at, str(error))
            rows["reading"] += seen.readings
            rows["holding"] += seen.holdings
            rows["source_read"] += seen.reads
    with Warehouse.open(None) as opened:
        for name, of in rows.items():
            assert not opened.ingest(name, to_table(name, of), name).rejected
        pods = (table for record, table in simulation.records() if record == "pod")
        for number, table in enumerate(pods):
            assert not opened.ingest("pod", table, f"pod-{number}").rejected
        assert opened.build_ledger(window).violations == 0
        yield opened


@pytest.fixture(scope="module")
def spans(house) -> pl.DataFrame:
    with house.writing() as cursor:
        return pl.DataFrame(pl.from_arrow(cursor.sql("from state_span").to_arrow_table()))


def test_it_closes_to_physical_cards(simulation, house, window, spans) -> None:
    for name in AUDITS:
        assert house.query(name, from_at=window.from_at, to_at=window.to_at).num_rows == 0, name
    by_card = spans.group_by("gpu_uuid").agg(pl.col("gpu_hours").sum())
    assert set(by_card["gpu_uuid"]) == {card.gpu_uuid for card in simulation.fleet.cards}
    assert by_card["gpu_hours"].to_list() == pytest.approx([float(HOURS)] * CARDS, abs=1e-9)
    rows = house.query("ledger_by", by="state", from_at=window.from_at, to_at=window.to_at).to_pylist()
    assert sum(row["gpu_hours"] for row in rows) == pytest.approx(float(HOURS * CARDS), abs=1e-9)


def test_each_pod_has_the_part_of_its_card_that_it_held(simulation, window, spans) -> None:
    told = (table for record, table in simulation.records() if record == "allocation")
    allocations = pl.concat([pl.DataFrame(pl.from_arrow(table)) for table in told])
    end = pl.lit(window.to_at)
    held = pl.min_horizontal("ended_at", end) - pl.max_horizontal("started_at", pl.lit(window.from_at))
    key = ["pod", "gpu_uuid", "slice_id"]
    truth = (
        allocations.unique("allocation_id", keep="last")
        .with_columns(hours=pl.col("share") * held.dt.total_seconds() / 3600)
        .filter(pl.col("hours") > 0)
        .group_by(key)
        .agg(pl.col("hours").sum())
    )
    found = spans.filter(pl.col("pod") != "").group_by(key).agg(pl.col("gpu_hours").sum())
    both = truth.join(found, on=key, how="full", coalesce=True).with_columns(pl.col("hours", "gpu_hours").fill_null(0))
    assert both["gpu_hours"].to_list() == pytest.approx(both["hours"].to_list(), abs=1e-6)
    assert set(allocations["share"]) == {1 / 8, 1 / 2, 1.0}


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
