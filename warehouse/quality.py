"""Works out how far the records of an hour can be trusted: coverage, contradictions, lost metrics, clocks, claims.

Runs after each built day of the ledger, for the same hours, so that a number and what is said of it are of one build.
The rules are in `sql/quality/`, one statement a file, run in the order of `STEPS`, in one transaction.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from datetime import datetime, timedelta

import duckdb
import pyarrow as pa

from gpuledger.model import canonical_model
from gpuledger.model.gpu_models import GPU_MODELS
from warehouse import queries

STEPS = (
    "reading_energy",
    "forget_reading_hour",
    "reading_hour",
    "forget_quality",
    "quality_told",
    "quality_reading",
    "quality_energy",
    "quality_coverage",
    "quality_metric",
    "quality_gap",
    "quality_inventory",
    "quality_promised",
    "quality_claim",
    "quality_unheld",
)
"""`reading_energy` and `reading_hour` count what was read; the others judge it."""

ENERGY_STEPS = (
    "reading_energy",
    "forget_reading_hour",
    "reading_hour",
    "forget_quality_energy",
    "quality_energy",
)
"""What is done again for the hour in which a card was read next: its first rise is counted from the hours before."""

_HOUR = timedelta(hours=1)


def build(cursor: duckdb.DuckDBPyConnection, from_at: datetime, to_at: datetime) -> None:
    """Work out the hours from `from_at`, a whole hour, to `to_at`, which may lie inside the newest one."""
    bounds = {"from_at": from_at, "to_at": to_at}
    with contextlib.closing(cursor.cursor()) as reader:
        claimed = reader.sql(queries.find("double_claims").sql, params=bounds).to_arrow_table()
    cursor.register("claimed", claimed)
    cursor.register(
        "power_limit", _power_limits(cursor, from_at - timedelta(days=1), to_at + timedelta(days=1, hours=2))
    )
    cursor.execute("begin")
    try:
        _run(cursor, STEPS, from_at, to_at)
        for hour_at in _read_next(cursor, from_at, to_at):
            _run(cursor, ENERGY_STEPS, hour_at, hour_at + _HOUR)
        cursor.execute("commit")
    except BaseException:
        cursor.execute("rollback")
        raise
    finally:
        cursor.unregister("claimed")
        cursor.unregister("power_limit")


def _run(cursor: duckdb.DuckDBPyConnection, names: Iterable[str], from_at: datetime, to_at: datetime) -> None:
    for name in names:
        cursor.execute(queries.find(name).sql, {"from_at": from_at, "to_at": to_at})


def _read_next(cursor: duckdb.DuckDBPyConnection, from_at: datetime, to_at: datetime) -> list[datetime]:
    """Hours after the window, already worked out, that hold the first energy rise of a card after it."""
    rows = cursor.execute(queries.find("energy_next").sql, {"from_at": from_at, "to_at": to_at}).fetchall()
    return [row[0] for row in rows]


def _power_limits(cursor: duckdb.DuckDBPyConnection, from_at: datetime, to_at: datetime) -> pa.Table:
    """What cards may draw, in watts, by the model's name as readings give it; without a name the most of any model."""
    rows = cursor.execute(
        "select distinct model from reading where model is not null and ts >= $from_at and ts < $to_at",
        {"from_at": from_at, "to_at": to_at},
    ).fetchall()
    known = {model.model: model.power_tdp_watts for model in GPU_MODELS}
    limits = {None: max(known.values())} | {name: known.get(canonical_model(name) or "") for (name,) in rows}
    return pa.table({"name": pa.array(limits, pa.string()), "watts": pa.array(limits.values(), pa.float64())})
