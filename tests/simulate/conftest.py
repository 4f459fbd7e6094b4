from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import polars as pl
import pyarrow as pa
import pytest

from gpuledger.simulate import FleetSpec, Simulation, simulate


@dataclass(frozen=True)
class Told:
    """A simulation with its records read into memory."""

    simulation: Simulation
    tables: Mapping[str, pl.DataFrame]
    truth: pl.DataFrame


def collect_records(simulation: Simulation) -> dict[str, pa.Table]:
    """All records of a simulation, one table each."""
    parts: dict[str, list[pa.Table]] = {}
    for name, table in simulation.records():
        parts.setdefault(name, []).append(table)
    return {name: pa.concat_tables(tables) for name, tables in parts.items()}


@cache
def tell_fleet(nodes: int, days: int, seed: int, scenario: str = "mixed") -> Told:
    simulation = simulate(FleetSpec(nodes=nodes, days=days, seed=seed, scenario=scenario))
    tables = {name: pl.DataFrame(pl.from_arrow(table)) for name, table in collect_records(simulation).items()}
    return Told(simulation, tables, pl.DataFrame(pl.from_arrow(simulation.truth())))


@pytest.fixture(scope="session")
def collect() -> Callable[[Simulation], dict[str, pa.Table]]:
    return collect_records


@pytest.fixture(scope="session")
def tell() -> Callable[..., Told]:
    return tell_fleet


@pytest.fixture(scope="session")
def small() -> Told:
    return tell_fleet(8, 3, 1)
