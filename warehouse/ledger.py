"""Builds the ledger: every share of every GPU-minute of a window into exactly one state (algorithms.md, section 0).

The rules are in `sql/ledger/`, one statement a file, run in the order of `STEPS`, one transaction a day.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa

from gpuledger.model import Window, canonical_model
from warehouse import queries

CONTEXT = timedelta(hours=1)
"""What is read before and after a day, so that a run that crosses its edge is judged whole (longest test: 30 min)."""

STEPS = (
    "ledger_card",
    "ledger_device",
    "ledger_pod",
    "ledger_spoken",
    "ledger_sighting",
    "ledger_stay",
    "ledger_unseen",
    "ledger_hold",
    "ledger_phase",
    "ledger_progress",
    "ledger_serving",
    "ledger_slot",
    "ledger_reading",
    "ledger_minute",
    "ledger_piece",
    "ledger_judged",
    "ledger_free",
)
"""Temporary tables, each made from those before it."""

WRITTEN = (
    "forget_state_span",
    "state_span",
    "forget_ledger_hour",
    "ledger_hour",
    "forget_activity_hour",
    "activity_hour",
)
"""What is written of a day, in one transaction."""

AUDITS = ("assert_ledger_closes", "assert_shares_sum_to_one")


@dataclass(frozen=True, slots=True)
class LedgerBuild:
    """What a build did: the window, how many spans it wrote, and how many rows the audits returned (must be 0)."""

    window: Window
    spans: int
    violations: int


def run(cursor: duckdb.DuckDBPyConnection, name: str, **parameters: Any) -> None:
    """Run the named statement with those of `parameters` that it takes."""
    query = queries.find(name)
    cursor.execute(query.sql, {key: parameters[key] for key in query.parameters})


def refresh_inventory(cursor: duckdb.DuckDBPyConnection) -> None:
    """Infer the inventory anew where none is declared, and name the model of every card canonically."""
    declared = cursor.execute("select 1 from asset where origin <> 'inferred' limit 1").fetchone()
    cursor.execute("begin")
    run(cursor, "forget_inferred_assets")
    if declared is None:
        run(cursor, "infer_assets")
    cursor.execute("commit")
    name_models(cursor)


def name_models(cursor: duckdb.DuckDBPyConnection) -> None:
    """Give this connection the canonical name of every model in the inventory (temporary table `model_alias`)."""
    names = [row[0] for row in cursor.execute("select distinct model from asset where model is not null").fetchall()]
    alias = {"name": pa.array(names, pa.string()), "model": pa.array(map(canonical_model, names), pa.string())}
    cursor.register("staged", pa.table(alias))
    cursor.execute("create or replace temp table model_alias as from staged")
    cursor.unregister("staged")


def build_day(cursor: duckdb.DuckDBPyConnection, day: Window, final_before_at: datetime, until_at: datetime) -> int:
    """Rebuild the whole hours of `day`, leaving out what lies after `until_at`. Gives the number of spans written."""
    written = {"from_at": day.from_at, "to_at": min(day.to_at, until_at)}
    context = {"from_at": day.from_at - CONTEXT, "to_at": min(day.to_at + CONTEXT, until_at)}
    for step in STEPS:
        run(cursor, step, **context)
    cursor.execute("begin")
    try:
        for name in WRITTEN:
            run(cursor, name, **written, final_before_at=final_before_at)
        cursor.execute("commit")
    except BaseException:
        cursor.execute("rollback")
        raise
    count = cursor.execute(
        "select count(*) from state_span where hour_at >= $from_at and hour_at < $to_at", written
    ).fetchone()
    return int(count[0]) if count else 0


def compare_inventory(cursor: duckdb.DuckDBPyConnection, at: datetime) -> None:
    """Write where assets, scheduler and telemetry disagree at `at`."""
    cursor.execute("begin")
    run(cursor, "forget_inventory_difference")
    run(cursor, "inventory_difference", at=at)
    cursor.execute("commit")


def audit(cursor: duckdb.DuckDBPyConnection, window: Window, names: Sequence[str] = AUDITS) -> int:
    """How many rows the audits return over `window`: 0 when the ledger closes."""
    found = 0
    for name in names:
        query = queries.find(name)
        found += len(cursor.execute(query.sql, {"from_at": window.from_at, "to_at": window.to_at}).fetchall())
    return found
