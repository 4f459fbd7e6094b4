"""Reads what `nvidia-smi --query-gpu=... --format=csv` prints: a table with a header, and sentences between its lines.

A cell may hold a number with or without its unit, a word for "not supported", or a word for "could not be read". A
card that is lost has no line but a sentence, which knows only its PCI address; it is a device all the same. Lines of
`nvidia-smi -L`, where they are in the text, say which card a MIG device is part of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from collector.nvidia_smi.fields import FIELDS, IDENTITY, measure


class Health(StrEnum):
    """How much of a device could be read."""

    MEASURED = "measured"
    PARTIAL = "partial"
    ERROR = "error"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Device:
    """One line of the table, or one sentence about a card that has none.

    `values` is in the units of a reading. Columns without one: `unsupported` where the card has no such thing, `failed`
    where it could not be read now, `rejected` where what was told is no measurement. `at` is the line's own time,
    without a zone.
    """

    health: Health
    uuid: str | None = None
    index: int | None = None
    pci: str | None = None
    name: str | None = None
    is_mig: bool = False
    at: datetime | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    unsupported: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MigDevice:
    """A MIG device of a listing: its UUID, its profile and the card that it is part of."""

    uuid: str
    profile: str
    gpu_uuid: str


@dataclass(frozen=True, slots=True)
class Output:
    """All that a text says: devices in its order, MIG devices by UUID, and the lines that say nothing of a device."""

    devices: tuple[Device, ...]
    slices: Mapping[str, MigDevice]
    others: tuple[str, ...]
    has_table: bool

    @property
    def status(self) -> str:
        """`ok`, `partial` when a device could not be read whole, `failed` when there is none."""
        if not self.devices:
            return "failed"
        return "ok" if all(device.health is Health.MEASURED for device in self.devices) else "partial"


_UNSUPPORTED = {"n/a", "not supported", "not available", "insufficient permissions", "no permission", "no data"}
_LOST = "gpu is lost"
_ADDRESS = r"(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"
_NO_HANDLE = re.compile(
    rf"unable to determine the device handle for gpu\s*(?:\d+:\s*)?({_ADDRESS})\s*:(.*)", re.IGNORECASE
)
_IS_LOST = re.compile(rf"({_ADDRESS}).*(?:is lost|fallen off the bus)", re.IGNORECASE)
_CARD_LINE = re.compile(r"GPU \d+: .*\(UUID: (GPU-[^)\s]+)\)")
_MIG_LINE = re.compile(r"MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)\s]+)\)")
_HEADER_CELL = re.compile(r"([a-z_]+(?:\.[a-z_]+)*)(?: \[([^\]]*)\])?")
_TIME_FORMATS = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S")


def address(text: str) -> str:
    """A PCI address in one form: `00000000:1a:00.0` and `1A:00.0` are `0000:1A:00.0`."""
    parts = text.upper().split(":")
    domain = parts[0] if len(parts) == 3 else "0"
    return f"{int(domain, 16):04X}:{':'.join(parts[-2:])}"


def read(text: str) -> Output:
    """What `text` says. Never raises: a line that is nothing known is one of `others`."""
    reader = _Reader()
    for line in text.lstrip("\ufeff").splitlines():
        if line.strip():
            reader.take(line.strip())
    return Output(tuple(reader.devices), reader.slices, tuple(reader.others), bool(reader.columns))


class _Reader:
    """The columns of the header above, and what was read so far."""

    def __init__(self) -> None:
        self.columns: list[tuple[str, str]] = []
        self.devices: list[Device] = []
        self.slices: dict[str, MigDevice] = {}
        self.others: list[str] = []
        self._card = ""

    def take(self, line: str) -> None:
        cells = [cell.strip() for cell in line.split(",")]
        if header := _header(cells):
            self.columns = header
        elif self.columns and len(cells) == len(self.columns) and (len(cells) > 1 or not self._is_sentence(line)):
            self.devices.append(_device(self.columns, cells))
        elif not self._is_sentence(line):
            self.others.append(line)

    def _is_sentence(self, line: str) -> bool:
        """Take a line of a listing or a sentence about a card in; False for every other line."""
        if match := _CARD_LINE.match(line):
            self._card = match[1]
        elif (match := _MIG_LINE.match(line)) and self._card:
            self.slices[match[2]] = MigDevice(match[2], match[1], self._card)
        elif match := _NO_HANDLE.match(line):
            health = Health.LOST if "lost" in match[2].lower() else Health.ERROR
            self.devices.append(Device(health, pci=address(match[1])))
        elif match := _IS_LOST.search(line):
            self.devices.append(Device(Health.LOST, pci=address(match[1])))
        else:
            return False
        return True


def _header(cells: list[str]) -> list[tuple[str, str]]:
    """Field and unit of each column, or nothing when the line is no header."""
    matches = [_HEADER_CELL.fullmatch(cell) for cell in cells]
    columns = [(match[1], match[2] or "") for match in matches if match is not None]
    is_header = len(columns) == len(cells) and any(name in FIELDS or name in IDENTITY for name, _ in columns)
    return columns if is_header else []


def _device(columns: list[tuple[str, str]], cells: list[str]) -> Device:
    identity: dict[str, str] = {}
    values: dict[str, float] = {}
    unread: dict[str, list[str]] = {}
    for (name, unit), cell in zip(columns, cells, strict=True):
        word = _word(cell)
        if name in IDENTITY and word is None:
            identity[IDENTITY[name]] = cell
        if name not in FIELDS:
            continue
        column = FIELDS[name].column
        value = measure(FIELDS[name], cell, unit) if word is None else None
        if value is None:
            unread.setdefault(word or "", []).append(column)
        else:
            values[column] = value
    return _identified(identity, values, unread)


def _identified(identity: Mapping[str, str], values: Mapping[str, float], unread: Mapping[str, list[str]]) -> Device:
    """`unread` holds columns by the word that stood in place of a value; "" is what is no measurement."""
    index, pci = identity.get("index", ""), identity.get("pci", "")
    return Device(
        health=_health(values, unread),
        uuid=identity.get("uuid"),
        index=int(index) if index.isdecimal() else None,
        pci=address(pci) if re.fullmatch(_ADDRESS, pci) else None,
        name=identity.get("name"),
        is_mig=identity.get("mig", "").lower() == "enabled",
        at=_time(identity.get("timestamp", "")),
        values=values,
        unsupported=tuple(c for word in unread for c in unread[word] if word in _UNSUPPORTED),
        failed=tuple(c for word in unread for c in unread[word] if word and word not in _UNSUPPORTED),
        rejected=tuple(unread.get("", ())),
    )


def _word(cell: str) -> str | None:
    """What stands in place of a value, in small letters without brackets; None for what may be a value."""
    bare = cell.strip("[]").strip().lower()
    is_word = cell.startswith("[") or bare in _UNSUPPORTED or bare in {"unknown error", "err!", _LOST}
    return (bare or "n/a") if is_word or not bare else None


def _health(values: Mapping[str, float], unread: Mapping[str, list[str]]) -> Health:
    if _LOST in unread:
        return Health.LOST
    if values:
        return Health.PARTIAL if unread else Health.MEASURED
    return Health.ERROR if unread.keys() - _UNSUPPORTED else Health.PARTIAL


def _time(text: str) -> datetime | None:
    for form in _TIME_FORMATS:
        try:
            return datetime.strptime(text, form)  # noqa: DTZ007 nvidia-smi does not say the zone
        except ValueError:
            continue
    return None
