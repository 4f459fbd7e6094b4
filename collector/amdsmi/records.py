"""A snapshot of the child, in amdsmi's units, as readings in ours.

Percent are divided by 100, MB are MiB, clocks are in MHz and means of a second, energy is a counter times its
resolution in microjoules. What the library does not know it calls "N/A"; power, clocks, temperature and memory in use
are never 0, so that 0 is no value either.

A partition's own activity is not told: what the library gives for one is the card's, divided by its dies, or nothing.
Its row says that it is there; power, energy, temperatures, clocks, memory are those of the first partition, on the
card's row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from collector.bounds import BOUNDS, WHOLE_COLUMNS
from gpuledger.errors import SourceError
from gpuledger.model import QualityFlag, Reading, SourceRead, canonical_model
from gpuledger.ports import Observation

SOURCE = "amdsmi"

_MIB = 2**20
_NO_NAME = re.compile(r"[0-]*|n/?a|none", re.IGNORECASE)
_NEVER_ZERO = frozenset(
    {
        "power_watts",
        "fb_used_bytes",
        "fb_total_bytes",
        "gpu_temp_celsius",
        "memory_temp_celsius",
        "sm_clock_hertz",
        "mem_clock_hertz",
        "energy_joules",
    }
)


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over the cards of `node`."""

    now: datetime
    node: str
    interval_seconds: float


def parse(snapshot: Mapping[str, Any], taken: Pass) -> Observation:
    """The records that a snapshot stands for. Raises SourceError for what is no snapshot.

    What cannot be understood of one card costs that card, and is counted.
    """
    devices = snapshot.get("devices")
    if not isinstance(devices, list):
        raise SourceError("the amdsmi process answered without devices")
    readings: dict[tuple[str, str], Reading] = {}
    skipped = 0
    for device in devices:
        try:
            for reading in _readings(device, taken):
                readings.setdefault((reading.gpu_uuid, reading.slice_id), reading)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
            skipped += 1
    read = SourceRead(
        ts=taken.now,
        node=taken.node,
        source=SOURCE,
        scope="device",
        ok=True,
        interval_seconds=taken.interval_seconds,
        device_count=len({card for card, _ in readings}),
        skipped_lines=skipped,
    )
    return Observation(reads=(read,), readings=tuple(readings[key] for key in sorted(readings)))


def _readings(device: Mapping[str, Any], taken: Pass) -> Iterator[Reading]:
    card = _card(device, taken)
    name = _text(_of(device, "asic", "market_name"))
    model = None if _NO_NAME.fullmatch(name) else canonical_model(name)
    partition, mode = _partition(device)
    measured = _measured(device, is_whole=not mode)
    values, invalid = _believed(measured) if partition == 0 else ({}, 0)
    about: dict[str, Any] = {
        "ts": taken.now,
        "node": taken.node,
        "gpu_uuid": card,
        "source": SOURCE,
        "seen_at": taken.now,
        "interval_seconds": taken.interval_seconds,
        "model": model,
    }
    flags = QualityFlag.VALUE_REJECTED if invalid else 0
    if partition == 0:
        yield Reading(**about, slice_id="", invalid_count=invalid, quality_flags=flags, **values)
    if mode:
        yield Reading(**about, slice_id=str(partition), slice_profile=mode)


def _card(device: Mapping[str, Any], taken: Pass) -> str:
    """The UUID, else the board's serial number (UUIDs of virtual functions are all zeros), else the place."""
    names = (_text(device["uuid"]), _text(_of(device, "board", "product_serial")))
    place = f"{taken.node}/{SOURCE}/{int(device['index'])}"
    return next((name for name in names if not _NO_NAME.fullmatch(name)), place)


def _partition(device: Mapping[str, Any]) -> tuple[int, str]:
    """(number of the partition, mode of its card such as "cpx"; no mode where the card is whole)."""
    told = device["partition"]
    if not isinstance(told, Mapping):
        return 0, ""
    number = told.get("partition_id")
    if isinstance(number, list):
        number = number[0] if number else 0
    mode = _text(_of(told, "partition_profile", "profile_type")).lower()
    if mode not in ("dpx", "tpx", "qpx", "cpx"):
        return 0, ""
    return int(_number(number) or 0), mode


def _measured(device: Mapping[str, Any], *, is_whole: bool) -> dict[str, float | None]:
    energy, resolution = _first(device, "energy", ("energy_accumulator", "power")), ("energy", "counter_resolution")
    values = {
        "power_watts": _first(device, "power", ("current_socket_power", "average_socket_power", "socket_power")),
        "power_limit_watts": _number(_of(device, "power", "power_limit")),
        "energy_joules": _product(energy, _number(_of(device, *resolution)), 1e-6),
        "fb_used_bytes": _product(_number(_of(device, "memory", "vram_used")), _MIB),
        "fb_total_bytes": _product(_number(_of(device, "memory", "vram_total")), _MIB),
        "gpu_temp_celsius": _number(device["celsius"]),
        "memory_temp_celsius": _number(device["memory_celsius"]),
        "sm_clock_hertz": _product(_first(device, "clock", ("clk", "cur_clk")), 1e6),
        "mem_clock_hertz": _product(_first(device, "memory_clock", ("clk", "cur_clk")), 1e6),
        "ecc_uncorrected_count": _number(_of(device, "ecc", "uncorrectable_count")),
    }
    if not is_whole:
        return values
    busy, copying = (_number(_of(device, "activity", name)) for name in ("gfx_activity", "umc_activity"))
    return values | {
        "gpu_util_ratio": None if busy is None else busy / 100,
        "mem_copy_util_ratio": None if copying is None else copying / 100,
    }


def _believed(values: Mapping[str, float | None]) -> tuple[dict[str, Any], int]:
    """The values inside their physical bounds, and how many were outside."""
    kept: dict[str, Any] = {}
    invalid = 0
    for column, value in values.items():
        if value is None:
            continue
        low, high = BOUNDS[column]
        if low <= value <= high and not (value == 0 and column in _NEVER_ZERO):  # never true of what is no number
            kept[column] = int(value) if column in WHOLE_COLUMNS else float(value)
        else:
            invalid += 1
    return kept, invalid


def _of(told: Mapping[str, Any], table: str, name: str) -> Any:
    inner = told.get(table)
    return inner.get(name) if isinstance(inner, Mapping) else None


def _first(device: Mapping[str, Any], table: str, names: Iterable[str]) -> float | None:
    """Of several names of one value, which differ by release and card, the first that has one."""
    found = (_number(_of(device, table, name)) for name in names)
    return next((value for value in found if value is not None), None)


def _number(value: Any) -> float | None:
    return None if isinstance(value, bool) or not isinstance(value, (int, float)) else float(value)


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _product(*factors: float | None) -> float | None:
    product = 1.0
    for factor in factors:
        if factor is None:
            return None
        product *= factor
    return product
