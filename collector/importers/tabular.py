"""Reads CSV files whose rows may be bad: a bad row is named and counted, and costs only itself."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import polars as pl
import pyarrow as pa
import pyarrow.csv as arrow_csv

from gpuledger.errors import BadInput, BadRecord

LISTED = 1000
"""How many bad rows are kept by name; more than that is a wrong file, not a few bad rows."""

Check = tuple[str, pl.Expr, str]
"""(field, expression that is true for a bad value, reason)."""


class Rejections:
    """The bad rows of an import: (row of the file, field, reason). Row 1 is the header; blank lines are not counted."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str, str]] = []
        self.count = 0

    def add(self, row: int, field: str, reason: str) -> None:
        """Name one bad row."""
        self.count += 1
        if len(self.rows) < LISTED:
            self.rows.append((row, field, reason))

    def raise_if_any(self) -> None:
        """Raise BadRecord naming the bad rows, after the good ones have been handed on."""
        if self.rows:
            raise BadRecord(sorted(self.rows))


def read_texts(path: Path, columns: Sequence[str], rejections: Rejections) -> pl.DataFrame:
    """`columns` of a CSV file as text, empty as null, beside `_row`; rows with too many or too few cells are rejected.

    Raises BadInput when the file cannot be read or a column is missing.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig", errors="replace")
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}") from error
    skipped: list[int] = []

    def skip(bad: arrow_csv.InvalidRow) -> str:
        skipped.append(bad.number)
        rejections.add(bad.number, path.name, f"has {bad.actual_columns} cells, the header has {bad.expected_columns}")
        return "skip"

    header = text.partition("\n")[0].strip().split(",")
    if missing := [column for column in columns if column not in header]:
        raise BadInput(missing[0], f"column is missing in {path.name}")
    table = arrow_csv.read_csv(
        io.BytesIO(text.encode()),
        read_options=arrow_csv.ReadOptions(use_threads=False),
        parse_options=arrow_csv.ParseOptions(invalid_row_handler=skip),
        convert_options=arrow_csv.ConvertOptions(column_types={name: pa.string() for name in header}),
    )
    taken = set(skipped)
    numbers = [row for row in range(2, 2 + table.num_rows + len(skipped)) if row not in taken]
    frame = cast("pl.DataFrame", pl.from_arrow(table.select(list(columns))))
    cells = [pl.when(pl.col(name).str.strip_chars() != "").then(pl.col(name).str.strip_chars()) for name in columns]
    return frame.select(
        pl.Series("_row", numbers, pl.Int64), *(cell.alias(n) for cell, n in zip(cells, columns, strict=True))
    )


def whole_number(column: str, *, optional: bool = False) -> Check:
    """A check that a text column holds an integer that is not negative."""
    number = pl.col(column).cast(pl.Int64, strict=False)
    bad = number.is_null() | (number < 0)
    return column, (bad & pl.col(column).is_not_null() if optional else bad), "is not a whole number of 0 or more"


def named(column: str) -> Check:
    """A check that a text column holds a readable name."""
    return (
        column,
        pl.col(column).is_null() | pl.col(column).str.contains("\ufffd", literal=True),
        "is empty or not UTF-8",
    )


def split_bad(frame: pl.DataFrame, checks: Sequence[Check], rejections: Rejections) -> pl.DataFrame:
    """The rows of `frame` that pass every check; the others go to `rejections`, each with its first bad field."""
    verdict = pl.coalesce([pl.when(bad).then(pl.lit(i, pl.Int32)) for i, (_, bad, _) in enumerate(checks)])
    judged = frame.with_columns(verdict.alias("_problem"))
    for row, problem in judged.filter(pl.col("_problem").is_not_null()).select("_row", "_problem").iter_rows():
        rejections.add(row, checks[problem][0], checks[problem][2])
    return judged.filter(pl.col("_problem").is_null()).drop("_problem")
