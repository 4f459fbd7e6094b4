"""Imports a price book and factors of conversion: one dated line each as CSV, or one dated table each as TOML.

Prices (CSV) have the columns price_per_gpu_hour, currency, basis, from_at and, where they are not for all, model and
tenant; factors have factor, model, basis, from_at. `until_at` may be empty or absent: until the next one begins. In
TOML they are tables `[[price]]` and `[[conversion]]` with the same names. A plain date is its midnight in UTC.
"""

from __future__ import annotations

import csv
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from collector.importers.lines import instant, rows, text_of
from collector.importers.tabular import Rejections
from gpuledger.errors import BadInput
from gpuledger.model import RECORDS, canonical_model, to_table
from gpuledger.model.vocabulary import CONVERSION_BASES, PRICE_BASES

REQUIRED = {
    "price": ("price_per_gpu_hour", "currency", "basis", "from_at"),
    "conversion": ("factor", "model", "basis", "from_at"),
}
_ALLOWED = {
    "price": {*REQUIRED["price"], "model", "tenant", "until_at"},
    "conversion": {*REQUIRED["conversion"], "until_at"},
}
_BASES = {"price": PRICE_BASES, "conversion": CONVERSION_BASES}
_CURRENCY = re.compile(r"[A-Z]{3}")


def read(file: Path) -> Iterator[tuple[str, pa.Table]]:
    """("price", table) and ("conversion", table) with every good line, then BadRecord naming each bad one.

    A bad line is named by its number, column and reason; of a TOML table the line is that of its heading. Raises
    BadInput, and yields nothing, when the file cannot be read, is no TOML, or has no usable header.
    """
    rejections = Rejections()
    found: dict[str, dict[tuple[Any, ...], Any]] = {"price": {}, "conversion": {}}
    for kind, line, cells in _entries(file, rejections):
        try:
            _add(found[kind], kind, _record(kind, cells))
        except BadInput as error:
            rejections.add(line, f"line {line}, {error.field}", error.reason)
    for kind, records in found.items():
        if records:
            yield kind, to_table(kind, records.values())
    rejections.raise_if_any()


def _add(known: dict[tuple[Any, ...], Any], kind: str, record: Any) -> None:
    key = tuple(getattr(record, name) for name in RECORDS[kind].key)
    if key in known:
        raise BadInput("from_at", f"a second {kind} for the same model and basis from {record.from_at.isoformat()}")
    known[key] = record


def _entries(file: Path, rejections: Rejections) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """(kind, line, values by name) for each price and factor of the file."""
    text = text_of(file)
    if file.suffix.lower() == ".toml":
        yield from _tables(text, rejections)
        return
    header = [name.strip() for name in next(csv.reader(text.splitlines()[:1]), [])]
    kind = "conversion" if "factor" in header else "price"
    for name in header:  # a price whose column "tennant" is passed over would be everybody's
        if name not in _ALLOWED[kind] or header.count(name) > 1:
            reason = "stands twice" if name in _ALLOWED[kind] else "is not known here"
            raise BadInput("line 1", f"column {name[:40]!r} {reason}; known: {', '.join(sorted(_ALLOWED[kind]))}")
    for line, cells in rows(text, REQUIRED[kind], rejections):
        yield kind, line, cells


def _tables(text: str, rejections: Rejections) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput("file", f"is no TOML: {error}") from error
    if unknown := sorted(content.keys() - REQUIRED.keys()):
        raise BadInput(unknown[0][:40], "is neither [[price]] nor [[conversion]]")
    for kind, tables in content.items():
        headings = _headings(text, kind)
        if not isinstance(tables, list):
            raise BadInput(kind, f"must be written as [[{kind}]], once for each")
        for number, table in enumerate(tables):
            line = headings[number] if number < len(headings) else 1
            strange = sorted(table.keys() - _ALLOWED[kind]) if isinstance(table, dict) else [kind]
            if strange:
                rejections.add(line, f"line {line}, {strange[0][:40]}", "is not known here")
            else:
                yield kind, line, table


def _headings(text: str, kind: str) -> list[int]:
    """The lines of the headings of one kind of table."""
    heading = re.compile(rf"\s*\[\[\s*{kind}\s*\]\]")
    return [number for number, line in enumerate(text.splitlines(), 1) if heading.match(line)]


def _record(kind: str, cells: Mapping[str, Any]) -> Any:
    for column in REQUIRED[kind]:
        if cells.get(column) in (None, ""):
            raise BadInput(column, "empty")
    basis = _text(cells, "basis")
    if basis not in _BASES[kind]:
        raise BadInput("basis", f"{basis[:40]!r} is none of {', '.join(_BASES[kind])}")
    from_at = _instant("from_at", cells["from_at"])
    until_at = _instant("until_at", cells["until_at"]) if cells.get("until_at") not in (None, "") else None
    if until_at is not None and until_at <= from_at:
        raise BadInput("until_at", "not after from_at")
    common = {
        "model": canonical_model(_text(cells, "model")) or "",
        "basis": basis,
        "from_at": from_at,
        "until_at": until_at,
    }
    if kind == "conversion":
        return RECORDS[kind].cls(factor=_number(cells, "factor", is_positive=True), **common)
    currency = _text(cells, "currency")
    if not _CURRENCY.fullmatch(currency):
        raise BadInput("currency", f"{currency[:40]!r} is no ISO 4217 code of three capital letters")
    return RECORDS[kind].cls(
        tenant=_text(cells, "tenant"),
        price_per_gpu_hour=_number(cells, "price_per_gpu_hour"),
        currency=currency,
        **common,
    )


def _text(cells: Mapping[str, Any], column: str) -> str:
    value = cells.get(column, "")
    if not isinstance(value, str):
        raise BadInput(column, f"{str(value)[:40]!r} is no text")
    if "\ufffd" in value:
        raise BadInput(column, f"{value[:40]!r} is not in UTF-8: save the file as CSV UTF-8")
    return value.strip()


def _number(cells: Mapping[str, Any], column: str, *, is_positive: bool = False) -> float:
    try:
        value = math.nan if isinstance(cells[column], bool) else float(cells[column])
    except (OverflowError, TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value) or value < 0 or (is_positive and value == 0):
        least = "above 0" if is_positive else "of 0 or more"
        raise BadInput(column, f"{str(cells[column])[:40]!r} is no number {least}")
    return value


def _instant(column: str, value: Any) -> datetime:
    """TOML has dates and times of its own; a time without a zone is refused as one in text is."""
    if isinstance(value, datetime):
        return instant(column, value.isoformat())
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, str):
        return instant(column, value)
    raise BadInput(column, f"{str(value)[:40]!r} is no time")
