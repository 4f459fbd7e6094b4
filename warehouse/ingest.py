"""Takes a batch in: checked, free of twins, idempotent by batch and by key, committed before it is acknowledged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import duckdb
import polars as pl

from gpuledger.model import RECORDS, RecordType, arrow_schema
from warehouse import pods


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What became of a batch. `duplicate`: this batch id had been committed before, nothing changed now.

    `earliest_at` is the first instant of which the ledger knows something new; None where it does not.
    """

    batch_id: str
    record: str
    accepted: int
    rejected: tuple[tuple[int, str, str], ...] = ()
    rejected_by_field: Mapping[str, int] = field(default_factory=dict)
    rejected_count: int = 0
    duplicate: bool = False
    earliest_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class History:
    """How a dated record makes the ledger: the columns that begin and end it."""

    begin: str
    end: str


HISTORY: Mapping[str, History] = {
    "allocation": History("started_at", "ended_at"),
    "asset": History("from_at", "until_at"),
    "condition": History("from_at", "until_at"),
    "scheduler_node": History("from_at", "until_at"),
}
"""Dated records that make the ledger. Pods do, too: `warehouse.pods`."""

STANDS: Mapping[str, str] = {"workload": "staged.scheduler <> '' or workload.scheduler = ''"}
"""When a row may replace the stored one: what a scheduler says of its own work stands before what was made of pods."""


def _identifiers(names: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _replace(cursor: duckdb.DuckDBPyConnection, kind: RecordType) -> datetime | None:
    """Insert or replace by key; gives the first instant that changed. Table and key are those of `RECORDS`."""
    changed_at = _first_change(cursor, kind) if kind.name in HISTORY else None
    stands = f"and ({STANDS[kind.name]}) " if kind.name in STANDS else ""
    cursor.execute(
        f'merge into "{kind.name}" using staged using ({_identifiers(kind.key)}) '
        f"when matched {stands}then update by name when not matched then insert by name"
    )
    return changed_at


def _first_change(cursor: duckdb.DuckDBPyConnection, kind: RecordType) -> datetime | None:
    """From when on the staged rows say something else than the stored ones; None when they repeat them.

    A row that only ends otherwise changes what follows the earlier of both ends.
    """
    history = HISTORY[kind.name]
    begin, end, key = f'"{history.begin}"', f'"{history.end}"', _identifiers(kind.key)
    others = [name for name in arrow_schema(kind.name).names if name not in {*kind.key, history.end}]
    is_other = " or ".join(_differs(f'"{name}"') for name in others)
    row = cursor.execute(
        f"select min(changed_at) from ("  # noqa: S608 constants of RECORDS
        f'select staged.{begin} as changed_at from staged anti join "{kind.name}" as old using ({key}) '
        f"union all select case when {is_other} then least(staged.{begin}, old.{begin}) "
        f"else greatest(staged.{begin}, least(staged.{end}, old.{end})) end "
        f'from staged inner join "{kind.name}" as old using ({key}) '
        f"where {is_other} or {_differs(end)})"
    ).fetchone()
    return row[0] if row else None


def _differs(column: str) -> str:
    return f"(staged.{column} is distinct from old.{column})"


def _append(cursor: duckdb.DuckDBPyConnection, kind: RecordType, staged: pl.DataFrame) -> datetime | None:
    """Append stream rows whose key is new; a row that was seen later replaces its twin. Gives the first instant.

    Only rows in the batch's span of time are looked at, so that the cost does not grow with the history.
    """
    span = {"low": staged[kind.time_column].min(), "high": staged[kind.time_column].max()}
    table, key = f'"{kind.name}"', _identifiers(kind.key)
    bounded = f'(from {table} where "{kind.time_column}" between $low and $high)'
    twins = cursor.execute(
        f"select count(*) from staged semi join {bounded} as existing using ({key})",  # noqa: S608 constants of RECORDS
        span,
    ).fetchone()
    if twins and twins[0]:
        if "seen_at" in staged.columns:
            same = " and ".join(f'{table}."{name}" = staged."{name}"' for name in kind.key)
            cursor.execute(
                f"delete from {table} using staged where {same} "  # noqa: S608 constants of RECORDS
                f'and {table}."{kind.time_column}" between $low and $high '
                f"and coalesce(staged.seen_at > {table}.seen_at, false)",
                span,
            )
        cursor.execute(
            f"insert into {table} by name from staged anti join {bounded} as existing using ({key})",
            span,
        )
    else:
        cursor.execute(f"insert into {table} by name from staged")
    return span["low"] if isinstance(span["low"], datetime) else None


def _write(
    cursor: duckdb.DuckDBPyConnection, kind: RecordType, staged: pl.DataFrame, committed_at: Any
) -> datetime | None:
    if kind.is_stream:
        return _append(cursor, kind, staged)
    return pods.fold(cursor, committed_at) if kind.is_filled else _replace(cursor, kind)


def committed(cursor: duckdb.DuckDBPyConnection, batch_id: str) -> IngestResult | None:
    """What was answered to `batch_id` when it was committed, or None for a new one."""
    row = cursor.execute(
        "select record, accepted_count, rejected_count from batch where batch_id = $batch_id", {"batch_id": batch_id}
    ).fetchone()
    return None if row is None else IngestResult(batch_id, row[0], row[1], rejected_count=row[2], duplicate=True)


def store(
    cursor: duckdb.DuckDBPyConnection, result: IngestResult, rows: pl.DataFrame, committed_at: Any
) -> IngestResult:
    """Write the rows and the batch's journal entry in one transaction. Gives `result` with its `earliest_at`."""
    kind = RECORDS[result.record]
    earliest_at = None
    cursor.execute("begin")
    try:
        if rows.height:
            cursor.register("staged", rows.to_arrow())
            earliest_at = _write(cursor, kind, rows, committed_at)
            cursor.unregister("staged")
        cursor.execute(
            "insert into batch values ($batch_id, $record, $accepted, $rejected, $committed_at, $earliest_at)",
            {
                "batch_id": result.batch_id,
                "record": result.record,
                "accepted": result.accepted,
                "rejected": result.rejected_count,
                "committed_at": committed_at,
                "earliest_at": earliest_at,
            },
        )
        cursor.execute("commit")
    except BaseException:
        cursor.execute("rollback")
        raise
    return replace(result, earliest_at=earliest_at)
