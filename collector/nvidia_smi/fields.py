"""The fields that nvidia-smi is asked for, the columns they fill, and how a cell becomes a number in our unit."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from collector.bounds import BOUNDS


@dataclass(frozen=True, slots=True)
class Field:
    """`column` of a reading; `unit` counts where neither the cell nor the header names one."""

    column: str
    unit: str


FIELDS: Mapping[str, Field] = {
    "utilization.gpu": Field("gpu_util_ratio", "%"),
    "utilization.memory": Field("mem_copy_util_ratio", "%"),
    "utilization.encoder": Field("enc_util_ratio", "%"),
    "utilization.decoder": Field("dec_util_ratio", "%"),
    "memory.used": Field("fb_used_bytes", "MiB"),
    "memory.reserved": Field("fb_reserved_bytes", "MiB"),
    "memory.total": Field("fb_total_bytes", "MiB"),
    "power.draw": Field("power_watts", "W"),
    "power.limit": Field("power_limit_watts", "W"),
    "enforced.power.limit": Field("power_limit_watts", "W"),
    "clocks.sm": Field("sm_clock_hertz", "MHz"),
    "clocks.current.sm": Field("sm_clock_hertz", "MHz"),
    "clocks.mem": Field("mem_clock_hertz", "MHz"),
    "clocks.current.memory": Field("mem_clock_hertz", "MHz"),
    "temperature.gpu": Field("gpu_temp_celsius", "C"),
    "temperature.memory": Field("memory_temp_celsius", "C"),
    "clocks_event_reasons.active": Field("throttle_reasons", ""),
    "clocks_throttle_reasons.active": Field("throttle_reasons", ""),
    "ecc.errors.uncorrected.volatile.total": Field("ecc_uncorrected_count", ""),
    "remapped_rows.correctable": Field("row_remap_correctable_count", ""),
    "remapped_rows.uncorrectable": Field("row_remap_uncorrectable_count", ""),
    "remapped_rows.failure": Field("row_remap_failure", ""),
}
"""Numbers by the name that nvidia-smi gives them."""

IDENTITY: Mapping[str, str] = {
    "index": "index",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "name": "name",
    "gpu_name": "name",
    "pci.bus_id": "pci",
    "gpu_bus_id": "pci",
    "mig.mode.current": "mig",
    "timestamp": "timestamp",
}
"""What says which card a line is about, and when."""

ASKED = (
    "index",
    "uuid",
    "name",
    "pci.bus_id",
    "mig.mode.current",
    "utilization.gpu",
    "utilization.memory",
    "memory.used",
    "memory.reserved",
    "memory.total",
    "power.draw",
    "power.limit",
    "clocks.sm",
    "clocks.mem",
    "temperature.gpu",
    "temperature.memory",
    "ecc.errors.uncorrected.volatile.total",
)
"""What the source asks for; a field that the installed version does not know is left out."""

UNITS: Mapping[str, float] = {
    "": 1.0,
    "%": 1.0,
    "b": 1.0,
    "kib": 2.0**10,
    "mib": 2.0**20,
    "gib": 2.0**30,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "mw": 1e-3,
    "w": 1.0,
    "kw": 1e3,
    "hz": 1.0,
    "khz": 1e3,
    "mhz": 1e6,
    "ghz": 1e9,
    "c": 1.0,
}
"""What one of a unit is in ours: bytes, watts, hertz, degrees Celsius; percents are divided, which rounds better."""

_CELL = re.compile(r"(0x[0-9a-fA-F]+|[-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*([A-Za-z%]*)")
_WORDS = {"yes": 1.0, "no": 0.0}


def measure(field: Field, cell: str, header_unit: str) -> float | None:
    """The value of a cell in our unit, or None for what is no number in the column's bounds.

    The unit in the cell counts before that in the header (`nounits` leaves it only there).
    """
    match = _CELL.fullmatch(cell)
    if match is None:
        return _WORDS.get(cell.lower()) if field.column == "row_remap_failure" else None
    unit = (match[2] or header_unit or field.unit).lower()
    try:
        number = float(int(match[1], 16)) if match[1].startswith("0x") else float(match[1])
        value = number * UNITS[unit] / (100 if unit == "%" else 1)
    except (ValueError, KeyError):
        return None
    low, high = BOUNDS[field.column]
    return value if math.isfinite(value) and low <= value <= high else None
