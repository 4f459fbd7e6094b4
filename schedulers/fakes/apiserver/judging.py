"""One keyword of a structural schema at a time: does a value keep to it?"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

KINDS: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: (
        not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}
"""What counts as a value of each type."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong at `field`: the reason as a Status's cause says it, and the message."""

    reason: str
    field: str
    message: str


def fault(path: str, value: Any, why: str) -> Fault:
    """A value that a rule refuses."""
    return Fault("FieldValueInvalid", path, f"Invalid value: {json.dumps(value)}: {path} in body {why}")


@dataclass(frozen=True, slots=True)
class Judge:
    """A keyword, the Python types that it applies to, and what it finds."""

    keyword: str
    applies_to: type[Any] | tuple[type[Any], ...]
    of: Callable[[Mapping[str, Any], Any, str], Iterator[Fault]]


@lru_cache(maxsize=4096)
def _pattern(text: str) -> re.Pattern[str]:
    # Go's `$` is the end of the text; Python's would take a line's end before it too.
    return re.compile(re.sub(r"(?<!\\)\$$", r"\\Z", text))


def _matches(schema: Mapping[str, Any], value: str, path: str) -> Iterator[Fault]:
    if not _pattern(schema["pattern"]).search(value):
        yield fault(path, value, f"should match '{schema['pattern']}'")


def _at_least(schema: Mapping[str, Any], value: float, path: str) -> Iterator[Fault]:
    least = schema["minimum"]
    if schema.get("exclusiveMinimum"):
        if value <= least:
            yield fault(path, value, f"should be greater than {least}")
    elif value < least:
        yield fault(path, value, f"should be greater than or equal to {least}")


def _at_most(schema: Mapping[str, Any], value: float, path: str) -> Iterator[Fault]:
    most = schema["maximum"]
    if schema.get("exclusiveMaximum"):
        if value >= most:
            yield fault(path, value, f"should be less than {most}")
    elif value > most:
        yield fault(path, value, f"should be less than or equal to {most}")


def _fits(schema: Mapping[str, Any], value: float, path: str) -> Iterator[Fault]:
    bits = {"int32": 31, "int64": 63}.get(schema["format"])
    if bits and not -(2**bits) <= value < 2**bits:
        yield fault(path, value, f"must be of type {schema['format']}")


def _is_time(text: str) -> bool:
    if not re.match(r"^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})\Z", text):
        return False
    try:
        datetime.fromisoformat(re.sub(r"\.\d+", "", text).upper())
    except ValueError:
        return False
    return True


def _reads_as(schema: Mapping[str, Any], value: str, path: str) -> Iterator[Fault]:
    if schema["format"] == "date-time" and not _is_time(value):
        yield fault(path, value, "must be of type date-time")


def _size(keyword: str, most: bool, unit: str) -> Callable[[Mapping[str, Any], Any, str], Iterator[Fault]]:
    def judged(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[Fault]:
        bound = schema[keyword]
        if len(value) > bound if most else len(value) < bound:
            yield fault(path, value, f"should have at {'most' if most else 'least'} {bound} {unit}")

    return judged


def _multiple(schema: Mapping[str, Any], value: float, path: str) -> Iterator[Fault]:
    if value % schema["multipleOf"]:
        yield fault(path, value, f"should be a multiple of {schema['multipleOf']}")


JUDGES: tuple[Judge, ...] = (
    Judge("pattern", str, _matches),
    Judge("minimum", (int, float), _at_least),
    Judge("maximum", (int, float), _at_most),
    Judge("multipleOf", (int, float), _multiple),
    Judge("format", (int, float), _fits),
    Judge("format", str, _reads_as),
    Judge("minLength", str, _size("minLength", most=False, unit="chars long")),
    Judge("maxLength", str, _size("maxLength", most=True, unit="chars long")),
    Judge("minItems", list, _size("minItems", most=False, unit="items")),
    Judge("maxItems", list, _size("maxItems", most=True, unit="items")),
    Judge("minProperties", Mapping, _size("minProperties", most=False, unit="properties")),
    Judge("maxProperties", Mapping, _size("maxProperties", most=True, unit="properties")),
)
"""Every keyword that bounds a value and is judged by it alone."""


def bounds(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[Fault]:
    """What the keywords of one schema find in a value of the right type, beyond what is inside it."""
    if "enum" in schema and value not in schema["enum"]:
        listed = ", ".join(f'"{each}"' for each in schema["enum"])
        text = f'Unsupported value: "{value}": supported values: {listed}'
        yield Fault("FieldValueNotSupported", path, text)
    for judge in JUDGES:
        if judge.keyword in schema and isinstance(value, judge.applies_to) and not isinstance(value, bool):
            yield from judge.of(schema, value, path)
