"""Takes a batch in: checked, free of twins, idempotent by batch and by key, committed before it is acknowledged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import duckdb
import polars as pl

from gpuledger.model import RECORDS, RecordType


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What became of a batch. `duplicate`: this batch id had been committed before, nothing changed now.

    `earliest_at` is the first instant that the accepted rows of a stream speak of.
    """

    batch_id: str
    record: str
    accepted: int
    rejected: tuple[tuple[int, str, str], ...] = ()
    rejected_by_field: Mapping[str, int] = field(default_factory=dict)
    rejected_count: int = 0
    duplicate: bool = False
    earliest_at: datetime | None = None


def earliest(record: str, rows: pl.DataFrame) -> datetime | None:
    """The first instant that `rows` of a stream speak of; None for none, and for dated facts."""
    kind = RECORDS[record]
    value = rows[kind.time_column].min() if kind.is_stream else None
    return value if isinstance(value, datetime) else None


def _identifiers(names: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _replace(cursor: duckdb.DuckDBPyConnection, kind: RecordType) -> None:
    """Insert or replace by key. Table and key come from `RECORDS`, never from input."""
    cursor.execute(
        f'merge into "{kind.name}" using staged using ({_identifiers(kind.key)}) '
        "when matched then update by name when not matched then insert by name"
    )


def _append(cursor: duckdb.DuckDBPyConnection, kind: RecordType, staged: pl.DataFrame) -> None:
    """Append stream rows whose key is new; a row that was seen later replaces its twin.

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


def committed(cursor: duckdb.DuckDBPyConnection, batch_id: str) -> IngestResult | None:
    """What was answered to `batch_id` when it was committed, or None for a new one."""
    row = cursor.execute(
        "select record, accepted_count, rejected_count from batch where batch_id = $batch_id", {"batch_id": batch_id}
    ).fetchone()
    return None if row is None else IngestResult(batch_id, row[0], row[1], rejected_count=row[2], duplicate=True)


def store(cursor: duckdb.DuckDBPyConnection, result: IngestResult, rows: pl.DataFrame, committed_at: Any) -> None:
    """Write the rows and the batch's journal entry in one transaction."""
    kind = RECORDS[result.record]
    cursor.execute("begin")
    try:
        if rows.height:
            cursor.register("staged", rows.to_arrow())
            if kind.is_stream:
                _append(cursor, kind, rows)
            else:
                _replace(cursor, kind)
            cursor.unregister("staged")
        cursor.execute(
            "insert into batch values ($batch_id, $record, $accepted, $rejected, $committed_at)",
            {
                "batch_id": result.batch_id,
                "record": result.record,
                "accepted": result.accepted,
                "rejected": result.rejected_count,
                "committed_at": committed_at,
            },
        )
        cursor.execute("commit")
    except BaseException:
        cursor.execute("rollback")
        raise
