"""Prometheus text exposition, read line by line: a bad line costs itself and is counted.

Ours because `prometheus_client.parser` loses the whole page for one bad line (an unescaped quote in a label, a value
"ERROR - FAILED TO CONVERT TO STRING", a truncated last line), renames counters that lack `_total`, and reads a warm
page dozens of times slower (`benchmarks/exposition_parse.py` prints the ratio).

The label part of a series hardly changes between two scrapes of a target. So it is parsed once, handed to a
`resolve` function that says what the series means to the caller, and remembered under its raw bytes; afterwards a
line costs one dictionary access and one `float`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Meaning = TypeVar("Meaning")

MAX_LINE_BYTES = 256 * 1024
MAX_SERIES = 50_000

_UNSEEN = object()
_HASH = ord("#")
_PLAIN = re.compile(
    rb'([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-zA-Z_][a-zA-Z0-9_]*="[^"\\\n]*"(?:,(?=[a-zA-Z_])|(?=\})))*)\}'
)
_PLAIN_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="([^"]*)"')
_BARE_NAME = re.compile(rb"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*")
_OPEN = re.compile(rb"[ \t]*\{[ \t]*")
_LABEL = re.compile(
    rb'(?:([a-zA-Z_][a-zA-Z0-9_]*)|"([^"\\\n]*(?:\\.[^"\\\n]*)*)")[ \t]*=[ \t]*"([^"\\\n]*(?:\\.[^"\\\n]*)*)"[ \t]*'
)
_QUOTED_NAME = re.compile(rb'"([^"\\\n]*(?:\\.[^"\\\n]*)*)"[ \t]*(?=[,}])')
_COMMA = re.compile(rb",[ \t]*")
_TAIL = re.compile(rb"[ \t]*([^ \t\r]+)(?:[ \t]+(-?\d{1,18}))?[ \t]*\r?")
_TIMESTAMP = re.compile(rb"(-?\d{1,18})\r?")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", '"': '"', "\\": "\\"}


@dataclass(frozen=True, slots=True)
class Series:
    """A series as written: metric name and labels, escapes undone."""

    name: str
    labels: Mapping[str, str]


@dataclass(slots=True)
class Page(Generic[Meaning]):
    """What one page gave.

    `samples` holds (meaning, value, timestamp in milliseconds or None) for each line whose series means something.
    `skipped_lines` counts lines that are not legal. `uncached_series` counts lines that were read the slow way
    because the target has more series than its cache may hold.
    """

    samples: list[tuple[Meaning, float, int | None]] = field(default_factory=list)
    skipped_lines: int = 0
    uncached_series: int = 0


def parse_series(line: bytes) -> tuple[Series, int]:
    """The series at the start of `line` and the position after it. Raises ValueError when it is not legal."""
    plain = _PLAIN.match(line)
    if plain is None:
        return _parse_any_series(line)
    pairs = _PLAIN_LABEL.findall(plain[2].decode("utf-8"))
    labels = dict(pairs)
    if len(labels) != len(pairs):
        raise ValueError("a label twice")
    return Series(plain[1].decode(), labels), plain.end()


def _parse_any_series(line: bytes) -> tuple[Series, int]:
    """The same for every legal form: blanks, escapes, a trailing comma, quoted names."""
    name_match = _BARE_NAME.match(line)
    position = name_match.end() if name_match else 0
    name = name_match[1].decode() if name_match else ""
    opening = _OPEN.match(line, position)
    if opening is None:
        if not name:
            raise ValueError("no metric name")
        return Series(name, {}), position
    position = opening.end()
    quoted = None if name else _QUOTED_NAME.match(line, position)
    if quoted is not None:
        name, position = _text(quoted[1]), _after_comma(line, quoted.end())
    labels, position = _parse_labels(line, position)
    if not name:
        raise ValueError("no metric name")
    return Series(name, labels), position


def _parse_labels(line: bytes, position: int) -> tuple[dict[str, str], int]:
    labels: dict[str, str] = {}
    while line[position : position + 1] != b"}":
        label = _LABEL.match(line, position)
        if label is None:
            raise ValueError("not a label")
        key = label[1].decode() if label[1] is not None else _text(label[2])
        if key in labels:
            raise ValueError(f"label {key} twice")
        labels[key] = _text(label[3])
        position = _after_comma(line, label.end())
    return labels, position + 1


def _after_comma(line: bytes, position: int) -> int:
    comma = _COMMA.match(line, position)
    if comma is not None:
        return comma.end()
    if line[position : position + 1] != b"}":
        raise ValueError("labels are not closed")
    return position


def _text(raw: bytes) -> str:
    text = raw.decode("utf-8")
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[0]), text)


def parse_value(raw: bytes) -> float:
    """A sample value. Raises ValueError for text that is no number in the format (`1_000` is Python's, not its)."""
    if b"_" in raw:
        raise ValueError("underscore in a number")
    return float(raw)


def _timestamp(raw: bytes) -> int:
    match = _TIMESTAMP.fullmatch(raw)
    if match is None:
        raise ValueError("not a timestamp")
    return int(match[1])


class ExpositionParser(Generic[Meaning]):
    """Reads the pages of one target and remembers its series.

    `resolve` gets each new series once and answers what it means, or None to ignore it. At most `max_series` series
    are remembered; what is beyond is resolved again on every page, and a full memory starts afresh with the next
    page, so that churning labels cost time but no memory. A line above `max_line_bytes` is refused unread.
    """

    def __init__(
        self,
        resolve: Callable[[Series], Meaning | None],
        *,
        max_series: int = MAX_SERIES,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self._resolve = resolve
        self._max_series = max_series
        self._max_line_bytes = max_line_bytes
        self._known: dict[bytes, Meaning | None] = {}

    def parse(self, page: bytes) -> Page[Meaning]:
        """Every legal line of `page`. Never raises, whatever the bytes."""
        if len(self._known) >= self._max_series:
            self._known.clear()
        result: Page[Meaning] = Page()
        add, known = result.samples.append, self._known
        for line in page.split(b"\n"):
            if not line or line[0] == _HASH:
                continue
            head, _, tail = line.rpartition(b" ")
            meaning = known.get(head, _UNSEEN)
            if meaning is _UNSEEN:
                self._read_timestamped(line, head, tail, result)
                continue
            try:
                # `parse_value`, spelled out: a call would cost a third of the whole loop.
                value = float(tail if b"_" not in tail else b"")
            except ValueError:
                self._read_slowly(line, result)
                continue
            if meaning is not None:
                add((meaning, value, None))  # type: ignore[arg-type]  # the sentinel is excluded above
        return result

    def _read_timestamped(self, line: bytes, head: bytes, tail: bytes, result: Page[Meaning]) -> None:
        """The text before the last blank is no known series: perhaps the last word is a timestamp."""
        series, _, middle = head.rpartition(b" ")
        meaning = self._known.get(series, _UNSEEN) if middle else _UNSEEN
        if meaning is _UNSEEN:
            self._read_slowly(line, result)
            return
        try:
            value, timestamp = parse_value(middle), _timestamp(tail)
        except ValueError:
            self._read_slowly(line, result)
            return
        if meaning is not None:
            result.samples.append((meaning, value, timestamp))  # type: ignore[arg-type]  # not the sentinel

    def _read_slowly(self, line: bytes, result: Page[Meaning]) -> None:
        try:
            self._read_new(line, result)
        except ValueError:
            result.skipped_lines += 1

    def _read_new(self, line: bytes, result: Page[Meaning]) -> None:
        stripped = line.strip()
        if not stripped or stripped.startswith(b"#"):
            return
        if len(line) > self._max_line_bytes:
            raise ValueError("line too long")
        series, end = parse_series(line)
        rest = _TAIL.fullmatch(line, end)
        if rest is None:
            raise ValueError("no value")
        value = parse_value(rest[1])
        timestamp = int(rest[2]) if rest[2] is not None else None
        # Keyed as the fast path will look it up: all that stands before the value's blank.
        key = line[: max(end, rest.start(1) - 1)]
        meaning = self._known.get(key, _UNSEEN)
        if meaning is _UNSEEN:
            meaning = self._resolve(series)
            if len(self._known) < self._max_series:
                self._known[key] = meaning
            else:
                result.uncached_series += 1
        if meaning is not None:
            result.samples.append((meaning, value, timestamp))  # type: ignore[arg-type]  # not the sentinel
