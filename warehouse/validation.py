"""Which rows of a batch are not usable, and why: bounds, finiteness, text length and times, one batch at a time."""

from __future__ import annotations

import dataclasses
import typing
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa

from gpuledger.errors import BadInput
from gpuledger.model import RECORDS, arrow_schema, complete

REJECTED_LISTED = 100
"""How many refused rows an answer lists; the rest is only counted."""

PLAUSIBLE = (datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC))
"""Dates outside of it are slips; the far ones could not even be read back."""


IN_THE_FUTURE = "lies in the future"

MUST_SAY = ("gpu_uuid", "node", "source", "queue", "allocation_id", "workload_id", "pod", "subject", "scheduler")
"""Names that identify something: an empty one identifies nothing."""

TENANTS_BY_RULE = ("tenant", "workload")
"""Records whose tenant need not be declared: rules say whose a workload is, and a stranger's hours are named
"(unowned)" in the tree, which is better than to lose its queue and stage."""

BEGIN_AND_END = (("from_at", "until_at"), ("started_at", "ended_at"))


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that come from settings: text length in bytes of UTF-8, and the span of acceptable times."""

    now: datetime
    max_text_bytes: int = 4096
    future_tolerance_seconds: float = 600
    oldest_accepted_days: float = 3650


@dataclass(frozen=True, slots=True)
class Checked:
    """The usable rows; (row, field, reason) of the first refused ones; how many were refused by field.

    `refused` holds the refused rows, each with its field and reason as `_reason`; None where there are none.
    """

    rows: pl.DataFrame
    rejected: tuple[tuple[int, str, str], ...] = ()
    rejected_by_field: Mapping[str, int] = field(default_factory=dict)
    refused: pl.DataFrame | None = None


def conform(record: str, table: pa.Table) -> pa.Table:
    """`table` in the record's schema, defaults filled in.

    Raises BadInput naming the column that is missing, unknown or mistyped.
    """
    schema = arrow_schema(record)
    for column in table.column_names:
        if column not in schema.names:
            raise BadInput(column, f"unknown column of {record}")
    try:
        return complete(record, table)
    except KeyError as error:
        raise BadInput(str(error.args[0]), f"required column of {record} is missing") from None
    except pa.ArrowException as error:
        raise BadInput(_mistyped(record, table), f"wrong type: {error}") from None


def _mistyped(record: str, table: pa.Table) -> str:
    schema = arrow_schema(record)
    for column in table.column_names:
        try:
            table[column].cast(schema.field(column).type)
        except pa.ArrowException:
            return str(column)
    return record


def _problems(record: str, limits: Limits, tenants: Collection[str]) -> Iterator[tuple[str, pl.Expr, str]]:
    """(field, expression that is true for a bad value, reason) for every check of the record."""
    kind = RECORDS[record]
    hints = typing.get_type_hints(kind.cls)
    for place in dataclasses.fields(kind.cls):
        name, column, options = place.name, pl.col(place.name), typing.get_args(hints[place.name])
        base = next((option for option in options if option is not type(None)), hints[place.name])
        if type(None) not in options:
            yield name, column.is_null(), "is required"
        if base is str:
            yield from _text_problems(name, column, limits, is_optional=place.default is not dataclasses.MISSING)
        yield from _number_problems(name, column, base, place.metadata)
        if choices := place.metadata.get("choices"):
            yield name, ~column.is_in(list(choices)), f"is not one of {', '.join(choices)}"
        if base is datetime:
            is_dated = (name == kind.time_column and kind.is_stream) or record == "allocation"
            yield from _time_problems(name, column, limits, is_bounded=is_dated)
        if name == "tenant" and record not in TENANTS_BY_RULE and tenants:
            yield name, ~column.is_in([*tenants, ""]), "unknown tenant"

    yield from _order_problems(hints.keys())


def _order_problems(names: Collection[str]) -> Iterator[tuple[str, pl.Expr, str]]:
    for begin, end in BEGIN_AND_END:
        if begin in names and end in names:
            yield end, pl.col(end) < pl.col(begin), f"lies before {begin}"


def _text_problems(
    name: str, column: pl.Expr, limits: Limits, *, is_optional: bool
) -> Iterator[tuple[str, pl.Expr, str]]:
    yield name, column.str.len_bytes() > limits.max_text_bytes, f"is longer than {limits.max_text_bytes} bytes"
    if name in MUST_SAY and not is_optional:
        yield name, column.str.strip_chars() == "", "is empty"


def _time_problems(
    name: str, column: pl.Expr, limits: Limits, *, is_bounded: bool
) -> Iterator[tuple[str, pl.Expr, str]]:
    years = f"{PLAUSIBLE[0].year} and {PLAUSIBLE[1].year}"
    yield name, ~column.is_between(*PLAUSIBLE), f"does not lie between {years}"
    if is_bounded:
        yield name, column > limits.now + timedelta(seconds=limits.future_tolerance_seconds), IN_THE_FUTURE
        yield name, column < limits.now - timedelta(days=limits.oldest_accepted_days), "is too old"


def _number_problems(name: str, column: pl.Expr, base: Any, bounds: Any) -> Iterator[tuple[str, pl.Expr, str]]:
    if base is float:
        yield name, ~column.is_finite(), "is not a finite number"
    if bounds.get("low") is not None:
        yield name, column < bounds["low"], f"is below {bounds['low']:g} {bounds['unit']}"
    if bounds.get("high") is not None:
        yield name, column > bounds["high"], f"is above {bounds['high']:g} {bounds['unit']}"


def check(record: str, table: pa.Table, limits: Limits, tenants: Collection[str] = ()) -> Checked:
    """Split a conforming `table` into usable and refused rows. Each refused row names its first bad field."""
    frame = typing.cast("pl.DataFrame", pl.from_arrow(table))
    problems = list(_problems(record, limits, tenants))
    verdict = pl.coalesce(
        [pl.when(bad.fill_null(value=False)).then(pl.lit(i, pl.Int32)) for i, (_, bad, _) in enumerate(problems)]
    )
    judged = frame.with_row_index("_row").with_columns(verdict.alias("_problem"))
    refused = judged.filter(pl.col("_problem").is_not_null())
    if not refused.height:
        return Checked(frame)
    listed = tuple(
        (int(row), problems[problem][0], problems[problem][2])
        for row, problem in refused.head(REJECTED_LISTED).select("_row", "_problem").iter_rows()
    )
    usable = judged.filter(pl.col("_problem").is_null()).drop("_row", "_problem")
    by_field: Counter[str] = Counter()
    for problem, count in refused["_problem"].value_counts().iter_rows():
        by_field[problems[problem][0]] += count
    reasons = pl.Series([f"{name} {reason}" for name, _, reason in problems], dtype=pl.String)
    named = refused.with_columns(reasons.gather(refused["_problem"]).alias("_reason")).drop("_row", "_problem")
    return Checked(usable, listed, by_field, named)


def latest_of_twins(record: str, rows: pl.DataFrame) -> pl.DataFrame:
    """One row for each key: the one seen last, or the later of the batch. DuckDB's upsert keeps the first of twins.

    Twins of a record that is filled stay: each may know what the other does not.
    """
    key = list(RECORDS[record].key)
    if (
        RECORDS[record].is_filled or rows.select(pl.struct(key).hash().n_unique()).item() == rows.height
    ):  # no twins: the usual case, and cheap to know
        return rows
    if "seen_at" in rows.columns:
        rows = rows.sort("seen_at", nulls_last=False, maintain_order=True)
    return rows.unique(subset=key, keep="last", maintain_order=True)
