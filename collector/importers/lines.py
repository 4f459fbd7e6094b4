"""Reads small CSV lists that people keep: each line by its number, so that a bad one is found and costs only itself."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from pathlib import Path

from collector.importers.tabular import Rejections
from gpuledger.errors import BadInput


def text_of(file: Path) -> str:
    """What a file holds; bytes that are no UTF-8 become U+FFFD. Raises BadInput when it cannot be read."""
    try:
        # utf-8-sig: spreadsheets write a byte-order mark, which is not part of the first column's name.
        return file.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise BadInput(str(file), f"cannot be read: {error.strerror}") from error


def rows(text: str, required: Sequence[str], rejections: Rejections) -> Iterator[tuple[int, dict[str, str]]]:
    """(line number, cells by column). Raises BadInput when the header is missing or lacks a column."""
    reader = csv.reader(io.StringIO(text, newline=""))
    header = [name.strip() for name in next(reader, [])]
    missing = [name for name in required if name not in header]
    if missing:
        raise BadInput("line 1", f"no column {', '.join(missing)}; found: {', '.join(header) or 'nothing'}")
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            rejections.add(reader.line_num, f"line {reader.line_num}", str(error))
            continue
        if len(cells) == len(header):
            yield reader.line_num, {name: cell.strip() for name, cell in zip(header, cells, strict=True)}
        elif cells:
            reason = f"has {len(cells)} cells, the header has {len(header)}"
            rejections.add(reader.line_num, f"line {reader.line_num}", reason)


def instant(column: str, text: str) -> datetime:
    """An ISO 8601 time with a zone, or a date, which is its midnight in UTC. Raises BadInput naming the column."""
    try:
        if len(text) == len("2026-01-01"):
            return datetime.combine(date.fromisoformat(text), time(), UTC)
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(column, f"{text!r} is no ISO 8601 time") from error
    if at.tzinfo is None:
        raise BadInput(column, f"{text!r} has no zone (append Z for UTC)")
    return at.astimezone(UTC)
