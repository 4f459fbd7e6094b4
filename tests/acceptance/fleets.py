"""Simulated fleets that are known by their exporters' pages: into a warehouse, and against what was planted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import polars as pl
import pytest

from collector.devices.page import failure, parse
from collector.mapping.source import MappedTarget
from gpuledger.errors import SourceError
from gpuledger.model import Window, to_table
from gpuledger.ports import Observation
from gpuledger.simulate import Simulation
from warehouse import Warehouse


def observations(
    simulation: Simulation, target_of: Callable[[str], MappedTarget], minutes: int
) -> Iterator[Observation]:
    """What an agent makes of the page of each node, one a minute; `target_of` gives the target of a node."""
    for host in simulation.fleet.hosts:
        target = target_of(host.name)
        for minute in range(minutes):
            at = simulation.spec.start_at + timedelta(minutes=minute)
            try:
                yield parse(simulation.node_page(host.name, at), at, target)
            except SourceError as error:
                yield failure(target, at, str(error))


def fill(house: Warehouse, simulation: Simulation, seen: Iterator[Observation], window: Window) -> None:
    """Put what was seen and the pods' own records into `house`, and build the ledger of `window`."""
    rows: dict[str, list[object]] = {"reading": [], "holding": [], "source_read": []}
    for observation in seen:
        rows["reading"] += observation.readings
        rows["holding"] += observation.holdings
        rows["source_read"] += observation.reads
    for name, of in rows.items():
        assert not house.ingest(name, to_table(name, of), name).rejected
    pods = (table for record, table in simulation.records() if record == "pod")
    for number, table in enumerate(pods):
        assert not house.ingest("pod", table, f"pod-{number}").rejected
    assert house.build_ledger(window).violations == 0


def spans_of(house: Warehouse) -> pl.DataFrame:
    """Every piece of the ledger."""
    with house.writing() as cursor:
        return pl.DataFrame(pl.from_arrow(cursor.sql("from state_span").to_arrow_table()))


def check_parts(simulation: Simulation, window: Window, spans: pl.DataFrame) -> set[float]:
    """Each pod has, of each card and slice, its share for as long as it was there. Gives the shares that were dealt."""
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
    return set(allocations["share"])
