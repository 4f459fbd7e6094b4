"""What is told of rows that were refused: how many, of which record, and why, as `quality_event` rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import duckdb
import polars as pl

from gpuledger.model import RECORDS, QualityEvent, to_table
from warehouse.validation import IN_THE_FUTURE

SOURCE = "ingest"
NAMED_NODES = 20
"""How many nodes of a batch with wrong clocks are named."""


def note(cursor: duckdb.DuckDBPyConnection, record: str, refused: pl.DataFrame, now: datetime) -> None:
    """Write what is to be told of the `refused` rows, whose `_reason` says why."""
    events = [*_reasons(record, refused, now), *_clocks(record, refused, now)]
    if events:
        cursor.register("told", to_table("quality_event", events))
        cursor.execute("insert into quality_event by name from told")
        cursor.unregister("told")


def _reasons(record: str, refused: pl.DataFrame, now: datetime) -> Iterator[QualityEvent]:
    for reason, count in refused["_reason"].value_counts().sort("_reason").iter_rows():
        yield _event(now, ("target", record), "refused_sample", reason, count)


def _clocks(record: str, refused: pl.DataFrame, now: datetime) -> Iterator[QualityEvent]:
    """How far ahead the clocks are whose times were refused, by node where rows have one."""
    time = RECORDS[record].time_column
    ahead = refused.filter(pl.col("_reason") == f"{time} {IN_THE_FUTURE}")
    if not ahead.height:
        return
    subject = pl.col("node") if "node" in refused.columns else pl.lit(record)
    worst = ahead.group_by(subject.alias("_subject")).agg((pl.col(time).max() - now).dt.total_seconds())
    kind = "node" if "node" in refused.columns else "target"
    for name, seconds in worst.sort("_subject").head(NAMED_NODES).iter_rows():
        yield _event(now, (kind, str(name)), "clock_skew", "ahead of the service", int(seconds))


def _event(now: datetime, subject: tuple[str, str], kind: str, detail: str, count: Any) -> QualityEvent:
    return QualityEvent(
        ts=now,
        source=SOURCE,
        subject_kind=subject[0],
        subject=subject[1],
        kind=kind,
        detail=detail,
        count=count,
    )
