"""Units in which exporters write, and what makes them ours. They go by name, never by the size of a value."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from collector.devices.fields import HELD_CORES, HELD_MEMORY, HELPER_COLUMNS, NVLINK_RX, NVLINK_TX
from gpuledger.model import Reading

KIB, MIB, GIB = 2.0**10, 2.0**20, 2.0**30

UNITS: Mapping[str, tuple[str, float, float]] = MappingProxyType(
    {
        "ratio": ("ratio", 1, 1),
        "percent": ("ratio", 1, 100),
        "B": ("bytes", 1, 1),
        "kB": ("bytes", 1e3, 1),
        "MB": ("bytes", 1e6, 1),
        "GB": ("bytes", 1e9, 1),
        "KiB": ("bytes", KIB, 1),
        "MiB": ("bytes", MIB, 1),
        "GiB": ("bytes", GIB, 1),
        "W": ("watts", 1, 1),
        "mW": ("watts", 1, 1e3),
        "J": ("joules", 1, 1),
        "mJ": ("joules", 1, 1e3),
        "uJ": ("joules", 1, 1e6),
        "kWh": ("joules", 3.6e6, 1),
        "Hz": ("hertz", 1, 1),
        "kHz": ("hertz", 1e3, 1),
        "MHz": ("hertz", 1e6, 1),
        "GHz": ("hertz", 1e9, 1),
        "C": ("celsius", 1, 1),
        "mC": ("celsius", 1, 1e3),
        "B/s": ("bytes/second", 1, 1),
        "kB/s": ("bytes/second", 1e3, 1),
        "MB/s": ("bytes/second", 1e6, 1),
        "GB/s": ("bytes/second", 1e9, 1),
        "KiB/s": ("bytes/second", KIB, 1),
        "MiB/s": ("bytes/second", MIB, 1),
        "GiB/s": ("bytes/second", GIB, 1),
        "count": ("count", 1, 1),
        "code": ("code", 1, 1),
        "flag": ("flag", 1, 1),
        "bitmask": ("bitmask", 1, 1),
    }
)
"""A unit's name: the unit of the column that it measures, and what the value is multiplied with and divided by."""


def _columns() -> dict[str, str]:
    units = {column.name: column.metadata["unit"] for column in dataclasses.fields(Reading) if column.metadata}
    del units["interval_seconds"]
    units |= {HELD_CORES: "ratio", HELD_MEMORY: "bytes"}
    return units | {name: "bytes/second" if name in (NVLINK_TX, NVLINK_RX) else "bytes" for name in HELPER_COLUMNS}


COLUMNS: Mapping[str, str] = MappingProxyType(_columns())
"""Columns that a metric may fill, with units: of a reading, free memory, links by direction, a holder's parts."""
