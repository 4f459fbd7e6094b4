"""The grammar of one line: series, value, timestamp. What is not legal raises `Refused` with the reason."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

NOT_UTF8 = "not UTF-8"
"""The reason that a decoder's own error stands for."""

_PLAIN = re.compile(
    rb'([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-zA-Z_][a-zA-Z0-9_]*="[^"\\\n]*"(?:,(?=[a-zA-Z_])|(?=\})))*)\}'
)
_PLAIN_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="([^"]*)"')
_PLAIN_NAME = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*")
_BARE_NAME = re.compile(rb"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*")
_OPEN = re.compile(rb"[ \t]*\{[ \t]*")
_LABEL = re.compile(
    rb'(?:([a-zA-Z_][a-zA-Z0-9_]*)|"([^"\\\n]*(?:\\.[^"\\\n]*)*)")[ \t]*=[ \t]*"([^"\\\n]*(?:\\.[^"\\\n]*)*)"[ \t]*'
)
_QUOTED_NAME = re.compile(rb'"([^"\\\n]*(?:\\.[^"\\\n]*)*)"[ \t]*(?=[,}])')
_COMMA = re.compile(rb",[ \t]*")
_TAIL = re.compile(rb"[ \t]*([^ \t\r]*)(?:[ \t]+([^ \t\r]+))?[ \t]*\r?")
_EXEMPLAR = re.compile(rb"[ \t]+#[ \t]*\{")
_MILLISECONDS = re.compile(rb"(-?\d{1,18})\r?")
_SECONDS = re.compile(rb"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\r?")
_MAX_SECONDS = 1e15
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", '"': '"', "\\": "\\"}


class Refused(ValueError):
    """A line that is not legal; its text is the reason, one of a small set of words."""


@dataclass(frozen=True, slots=True)
class Series:
    """A series as written: metric name and labels, escapes undone."""

    name: str
    labels: Mapping[str, str]


def parse_series(line: bytes) -> tuple[Series, int]:
    """The series at the start of `line` and the position after it. Raises ValueError when it is not legal."""
    plain = _PLAIN.match(line)
    if plain is None:
        return _parse_any_series(line)
    return Series(plain[1].decode(), _labels(plain[2])), plain.end()


def plain_name(text: bytes) -> str | None:
    """The metric name `text`, or None when it is none."""
    return text.decode() if _PLAIN_NAME.fullmatch(text) else None


def _labels(text: bytes) -> dict[str, str]:
    pairs = _PLAIN_LABEL.findall(text.decode("utf-8"))
    labels = dict(pairs)
    if len(labels) != len(pairs):
        raise Refused("a label twice")
    return labels


def _parse_any_series(line: bytes) -> tuple[Series, int]:
    """The same for every legal form: blanks, escapes, a trailing comma, quoted names."""
    name_match = _BARE_NAME.match(line)
    position = name_match.end() if name_match else 0
    name = name_match[1].decode() if name_match else ""
    opening = _OPEN.match(line, position)
    if opening is None:
        if not name:
            raise Refused("no metric name")
        return Series(name, {}), position
    position = opening.end()
    quoted = None if name else _QUOTED_NAME.match(line, position)
    if quoted is not None:
        name, position = unescaped(quoted[1]), _after_comma(line, quoted.end())
    labels, position = _parse_labels(line, position)
    if not name:
        raise Refused("no metric name")
    return Series(name, labels), position


def _parse_labels(line: bytes, position: int) -> tuple[dict[str, str], int]:
    labels: dict[str, str] = {}
    while line[position : position + 1] != b"}":
        label = _LABEL.match(line, position)
        if label is None:
            raise Refused("not a label")
        key = label[1].decode() if label[1] is not None else unescaped(label[2])
        if key in labels:
            raise Refused("a label twice")
        labels[key] = unescaped(label[3])
        position = _after_comma(line, label.end())
    return labels, position + 1


def _after_comma(line: bytes, position: int) -> int:
    comma = _COMMA.match(line, position)
    if comma is not None:
        return comma.end()
    if line[position : position + 1] != b"}":
        raise Refused("labels are not closed")
    return position


def unescaped(raw: bytes) -> str:
    """Text between quotes, its escapes undone. Raises ValueError when it is not UTF-8."""
    text = raw.decode("utf-8")
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[0]), text)


def parse_value(raw: bytes) -> float:
    """A sample value. Raises ValueError for text that is no number in the format (`1_000` is Python's, not its)."""
    try:
        if b"_" not in raw:
            return float(raw)
    except ValueError:
        pass
    raise Refused("not a number")


def parse_time(raw: bytes, *, in_seconds: bool) -> int:
    """A timestamp in milliseconds; `in_seconds` as OpenMetrics writes it. Raises ValueError for anything else."""
    match = (_SECONDS if in_seconds else _MILLISECONDS).fullmatch(raw)
    if match is None:
        raise Refused("not a timestamp")
    if not in_seconds:
        return int(match[1])
    seconds = parse_value(match[1])
    if not math.isfinite(seconds) or abs(seconds) > _MAX_SECONDS:
        raise Refused("not a timestamp")
    return round(seconds * 1000)


def parse_rest(line: bytes, position: int, *, in_seconds: bool) -> tuple[bytes, int | None, int]:
    """What follows a series that ends at `position`: the value as written, the time, and where the value begins.

    Raises ValueError when it is not a value with or without a timestamp. OpenMetrics may add an exemplar, which says
    nothing about the sample.
    """
    exemplar = _EXEMPLAR.search(line, position) if in_seconds else None
    rest = _TAIL.fullmatch(line, position, exemplar.start() if exemplar else len(line))
    if rest is None:
        raise Refused("more than a value and a timestamp")
    if not rest[1]:
        raise Refused("no value")
    parse_value(rest[1])
    time_ms = None if rest[2] is None else parse_time(rest[2], in_seconds=in_seconds)
    return rest[1], time_ms, rest.start(1)
