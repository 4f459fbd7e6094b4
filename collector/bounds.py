"""What a value may be before it is believed: the bounds that the record's own fields state, as plain numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from gpuledger.model import Reading

_WHOLE_NUMBER_BOUND = 2.0**53  # above, a float is no longer one certain integer


def _bounds() -> dict[str, tuple[float, float]]:
    bounds = {}
    for column in dataclasses.fields(Reading):
        low, high = column.metadata.get("low"), column.metadata.get("high")
        if low is not None:
            bounds[column.name] = (low, _WHOLE_NUMBER_BOUND if high is None else high)
    # Links: the fastest card moves under 4 TB/s; without this bound a byte counter would pass for a rate.
    return bounds | {"nvlink_bytes_per_second": (0.0, 4e12)}


BOUNDS: Mapping[str, tuple[float, float]] = MappingProxyType(_bounds())
"""Inclusive physical bounds of a reading's columns, in the column's unit."""

WHOLE_COLUMNS = frozenset(column.name for column in dataclasses.fields(Reading) if "int" in str(column.type))
"""Columns of a reading that hold whole numbers."""
