"""Options of rules and recommenders: one frozen dataclass each, read from JSON values or from a URL's texts."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

from gpuledger.errors import BadInput

OptionsType = TypeVar("OptionsType")


def option(default: Any, *, unit: str, low: float | None = None, choices: tuple[str, ...] = ()) -> Any:
    """An option with its unit ("count", "hours", "ratio", ...), the least number it may be and the texts it may be."""
    return dataclasses.field(default=default, metadata={"unit": unit, "low": low, "choices": choices})


def _instant(value: Any) -> datetime:
    instant = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant


def _boolean(value: Any) -> bool:
    texts = {"true": True, "1": True, "false": False, "0": False}
    if str(value).lower() not in texts:
        raise ValueError(value)
    return texts[str(value).lower()]


def _whole(value: Any) -> int:
    number = float(value)
    if number != int(number):
        raise ValueError(value)
    return int(number)


_READERS: Mapping[Any, Any] = {datetime: _instant, bool: _boolean, int: _whole, float: float, str: str}
_WORDS = {datetime: "a time", bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def _read(field: dataclasses.Field[Any], hint: Any, value: Any) -> Any:
    kinds = typing.get_args(hint) or (hint,)
    if value is None or (value == "" and str not in kinds):
        if type(None) in kinds:
            return None
        raise BadInput(field.name, "must have a value")
    kind = next(kind for kind in kinds if kind is not type(None))
    try:
        read = _READERS[kind](value)
    except (TypeError, ValueError, OverflowError):
        raise BadInput(field.name, f"{value!r} is not {_WORDS[kind]} ({field.metadata['unit']})") from None
    low, choices = field.metadata["low"], field.metadata["choices"]
    if low is not None and not read >= low:
        raise BadInput(field.name, f"{value!r} is below {low:g} {field.metadata['unit']}")
    if choices and read not in choices:
        raise BadInput(field.name, f"{value!r} is not one of {', '.join(choices)}")
    return read


@cache
def _hints(kind: type[Any]) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


def read_options(kind: type[OptionsType], given: Mapping[str, Any]) -> OptionsType:
    """`given` as an instance of the options dataclass `kind`. Raises BadInput naming an unknown or unusable option."""
    fields = {field.name: field for field in dataclasses.fields(typing.cast("Any", kind))}
    if unknown := sorted(set(given) - set(fields)):
        raise BadInput(unknown[0], f"no such option; known: {', '.join(fields)}")
    hints = _hints(typing.cast("Any", kind))
    return kind(**{name: _read(fields[name], hints[name], value) for name, value in given.items()})
