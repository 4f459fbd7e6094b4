"""How a record's field says its unit and its bounds; ingest and documentation read it from here."""

from __future__ import annotations

import dataclasses
from typing import Any


def measure(unit: str, *, low: float | None = None, high: float | None = None) -> Any:
    """An optional measured value. None means "not measured", never zero.

    `unit` is the unit's name; `low` and `high` are the inclusive physical bounds outside of which
    a value is not a measurement.
    """
    return dataclasses.field(default=None, metadata={"unit": unit, "low": low, "high": high})


def ratio() -> Any:
    """An optional share, 0 to 1."""
    return measure("ratio", low=0.0, high=1.0)


def interval() -> Any:
    """The time between two reads of a source, seconds. None: it does not say."""
    return measure("seconds", low=0.001, high=86_400)


def quantity(unit: str, *, low: float | None = 0.0, high: float | None = None) -> Any:
    """A required number with bounds."""
    return dataclasses.field(metadata={"unit": unit, "low": low, "high": high})


def choice(values: tuple[str, ...], *, default: Any = dataclasses.MISSING) -> Any:
    """A required text that is one of `values`."""
    return dataclasses.field(default=default, metadata={"choices": values})
