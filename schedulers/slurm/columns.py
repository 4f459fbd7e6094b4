"""Tables of Slurm's commands: columns apart by a mark, free text last, bytes that are no UTF-8 shown as U+FFFD.

A job's name may hold anything, line ends too: where it is told, the mark is one that nobody can guess.
`squeue -O` pads each column to a width and cuts what is longer: a cut text is marked with `CUT`, so that no number is
read from it. `sacct -P` does neither.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from gpuledger.errors import BadInput
from schedulers.slurm.tres import CUT

Row = Mapping[str, str]
Default = TypeVar("Default")

_NO_TIME = frozenset({"", "N/A", "Unknown", "None", "NONE", "(null)"})
_NO_TEXT = frozenset({"N/A", "(null)", "n/a"})


def told(output: bytes, mark: bytes) -> list[bytes]:
    """The rows of an output that has `mark` after each column; a row may be of several lines."""
    return [row for row in output.split(mark + b"\n") if row.strip()]


def padded(line: bytes, widths: Mapping[str, int], mark: bytes = b"|") -> Row:
    """One row of `squeue -O`, by column. Raises BadInput where it has fewer columns."""
    cells = line.split(mark, len(widths) - 1)
    return dict(_cells(cells, list(widths), widths))


def plain(line: bytes, columns: Sequence[str], mark: bytes = b"|") -> Row:
    """One row of `sacct`, by column; a `mark` in the last one belongs to it. Raises BadInput as `padded`."""
    return dict(_cells(line.split(mark, len(columns) - 1), columns, {}))


def _cells(cells: Sequence[bytes], columns: Sequence[str], widths: Mapping[str, int]) -> list[tuple[str, str]]:
    if len(cells) != len(columns):
        raise BadInput("line", f"{len(cells)} columns, not {len(columns)}: {_text(cells[0])!r}")
    return [
        (name, f"{_text(cell)}{CUT}" if name in widths and len(cell.rstrip()) >= widths[name] else _text(cell))
        for name, cell in zip(columns, cells, strict=True)
    ]


def _text(cell: bytes) -> str:
    text = cell.decode("utf-8", errors="replace").strip()
    return "" if text in _NO_TEXT else text


def at(text: str) -> datetime | None:
    """A time as the commands print it under TZ=UTC; None for what is not known. Raises BadInput."""
    if text in _NO_TIME:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise BadInput("time", f"{text!r} is no time") from None


def needed_at(text: str, field: str) -> datetime:
    """As `at`. Raises BadInput where it is not known."""
    found = at(text)
    if found is None:
        raise BadInput(field, "is not told")
    return found


def whole(text: str, default: Default) -> int | Default:
    """A whole number; `default` where none is told. Raises BadInput for anything else, a cut number too."""
    if text in _NO_TIME:
        return default
    if not re.fullmatch(r"-?\d+", text):
        raise BadInput("number", f"{text!r} is no whole number")
    return int(text)


def words(text: str) -> frozenset[str]:
    """States and flags in capitals: "MIXED+DRAIN", "idle*" (does not respond), "CANCELLED by 0"."""
    found = {word for word in re.split(r"[+, ]", text.split(" by ", maxsplit=1)[0].upper()) if word}
    marks = {"*": "NOT_RESPONDING", "~": "POWERED_DOWN", "%": "POWERING_DOWN", "#": "POWERING_UP", "$": "MAINT"}
    flags = {flag for mark, flag in marks.items() if any(word.endswith(mark) for word in found)}
    return frozenset({word.rstrip("*~%#$@^!-") for word in found} | flags)


def field(line: str, key: str, pattern: str = r"\S*") -> str:
    """What `scontrol -o` says of `key` ("Key=..."); "" where it does not."""
    match = re.search(rf"(?:^| ){re.escape(key)}=({pattern})", line)
    return "" if match is None or match[1] in _NO_TEXT else match[1]
