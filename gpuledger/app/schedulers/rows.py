"""What of two listings of one record changed: whole columns at a time, because a listing may have 20,000 rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import cast

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from gpuledger.model import arrow_schema
from gpuledger.ports import SchedulerSnapshot

TIME = pa.timestamp("us", tz="UTC")

SUBJECTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "node": ("node",),
        "asset": ("gpu_uuid",),
        "tenant": ("tenant",),
        "condition": ("subject", "condition"),
        "scheduler_node": ("scheduler", "node"),
        "node_state": ("scheduler", "node", "resource"),
        "quota": ("queue", "flavor"),
        "queue_resource": ("queue", "flavor", "resource"),
        "wait": ("workload_id",),
    }
)
"""Records that hold from `from_at` to `until_at`, and the columns that say of what."""

EPISODES: Mapping[str, tuple[str, ...]] = MappingProxyType({"wait": ("cause",)})
"""What makes another fact of one subject: of the others any column does. A wait goes on while its cause is the same,
however its message changes."""

WORDS = ("message", "reason", "detail", "pending_reason")
"""Columns of a scheduler's own words, which may be of any length."""

MAX_WORDS = 1000
"""Characters that are kept of them: longer texts would cost the row."""


def shortened(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` with a scheduler's long texts cut."""
    return rows.with_columns(pl.col(name).str.slice(0, MAX_WORDS) for name in WORDS if name in rows.columns)


def moved(snapshot: SchedulerSnapshot, taken_at: datetime) -> SchedulerSnapshot:
    """`snapshot` as if taken at `taken_at`: what it dates with its own moment is dated with this one."""
    own, new = pa.scalar(snapshot.taken_at, TIME), pa.scalar(taken_at, TIME)

    def dated(rows: pa.Table) -> pa.Table:
        column = rows["from_at"]
        place = rows.schema.get_field_index("from_at")
        return rows.set_column(place, rows.schema.field(place), pc.if_else(pc.equal(column, own), new, column))

    records = {name: dated(rows) if name in SUBJECTS else rows for name, rows in snapshot.records.items()}
    return replace(snapshot, taken_at=taken_at, records=records)


def frame(table: pa.Table) -> pl.DataFrame:
    """An Arrow table as a frame."""
    return cast("pl.DataFrame", pl.from_arrow(table))


def table(record: str, rows: pl.DataFrame) -> pa.Table:
    """A frame as an Arrow table in the record's schema."""
    schema = arrow_schema(record)
    return rows.select(schema.names).to_arrow().cast(schema)


def empty(record: str) -> pl.DataFrame:
    """No rows of `record`."""
    return frame(arrow_schema(record).empty_table())


def beside(new: pl.DataFrame, old: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """`new` with the columns of the row of `old` that has its key as `<name>_old`, NULL where there is none."""
    marked = old.with_columns(is_known=pl.lit(value=True))
    return new.join(marked, on=list(key), how="left", suffix="_old", nulls_equal=True).with_columns(
        pl.col("is_known").fill_null(value=False)
    )


def differs(columns: Sequence[str]) -> pl.Expr:
    """Whether a row of `beside` says something else than its old one in any of `columns`."""
    if not columns:
        return pl.lit(value=False)
    return pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}_old")) for name in columns)


def changed(new: pl.DataFrame, old: pl.DataFrame, key: Sequence[str], but: Sequence[str] = ()) -> pl.DataFrame:
    """Rows of `new` that are unknown to `old`, or say something else than there, apart from the columns `but`."""
    others = [name for name in new.columns if name not in {*key, *but}]
    joined = beside(new, old, key)
    return joined.filter(~pl.col("is_known") | differs(others)).select(new.columns)


def gone(new: pl.DataFrame, old: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Rows of `old` whose key `new` does not have."""
    return old.join(new, on=list(key), how="anti", nulls_equal=True)
