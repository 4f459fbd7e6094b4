"""Works out how far the records of an hour can be trusted: coverage, contradictions, lost metrics, clocks, claims.

Runs after each built day of the ledger, for the same hours, so that a number and what is said of it are of one build.
The rules are in `sql/quality/`, one statement a file, run in the order of `STEPS`, in one transaction.
"""

from __future__ import annotations

import contextlib
from datetime import datetime

import duckdb

from warehouse import queries

STEPS = (
    "forget_reading_hour",
    "reading_hour",
    "forget_quality",
    "quality_told",
    "quality_reading",
    "quality_coverage",
    "quality_metric",
    "quality_gap",
    "quality_inventory",
    "quality_claim",
    "quality_unheld",
)
"""`reading_hour` counts what was read; the others judge it."""


def build(cursor: duckdb.DuckDBPyConnection, from_at: datetime, to_at: datetime) -> None:
    """Work out the hours from `from_at`, a whole hour, to `to_at`, which may lie inside the newest one."""
    bounds = {"from_at": from_at, "to_at": to_at}
    with contextlib.closing(cursor.cursor()) as reader:
        claimed = reader.sql(queries.find("double_claims").sql, params=bounds).to_arrow_table()
    cursor.register("claimed", claimed)
    cursor.execute("begin")
    try:
        for name in STEPS:
            cursor.execute(queries.find(name).sql, bounds)
        cursor.execute("commit")
    except BaseException:
        cursor.execute("rollback")
        raise
    finally:
        cursor.unregister("claimed")
