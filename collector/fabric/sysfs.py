"""The kernel's files of network adapters, `/sys/class/infiniband/<device>/ports/<port>/...`, as text by path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from collector.fabric.counters import COUNTERS
from collector.fabric.ports import MAX_BITS_PER_SECOND, MAX_NAME, Port, Reader
from gpuledger.ports import Observation

ABSENT = "N/A"
"""How drivers without a performance agent answer ("N/A (no PMA)"): no value, and no fault either."""

FILES = tuple(
    dict.fromkeys(
        (
            *("link_layer", "state", "phys_state", "rate"),
            *(counter.file for counter in COUNTERS),
            *(counter.later_file for counter in COUNTERS if counter.later_file),
        )
    )
)
"""What is read of each port, below its folder."""

_COUNT = re.compile(r"[0-9]{1,24}")
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) Gb/sec\b.*", re.ASCII)
_STATE = re.compile(r"([0-9]{1,4}): .*|([0-9]{1,4})", re.ASCII)


def parse(files: Mapping[str, str], now: datetime, reader: Reader) -> Observation:
    """One row for each port of `files`: text by path below the folder of adapters. Never raises.

    A file that could not be read is there with an empty text: its value is unknown, and counted.
    """
    ports: dict[tuple[str, str], Port] = {}
    for path, text in files.items():
        device, folder, number, *rest = (*path.split("/", 3), "", "", "")
        name = rest[0]
        if folder != "ports" or name not in FILES or not _is_name(device) or not _is_name(number):
            continue
        port = ports.setdefault((device, number), Port(device, number))
        _take(port, name, text.strip(), reader)
    return reader.observed(ports, now)


def _is_name(text: str) -> bool:
    return 0 < len(text) <= MAX_NAME and text.isprintable()


def _take(port: Port, name: str, text: str, reader: Reader) -> None:
    if text.startswith(ABSENT):
        return
    if name == "link_layer":
        port.layer = text
    elif name == "rate":
        found = _RATE.fullmatch(text)
        rate = float(found[1]) * 1e9 if found else None
        if rate is None or rate > MAX_BITS_PER_SECOND:
            _refuse(reader, name)
        else:
            port.rate_bits_per_second = rate
    elif name in ("state", "phys_state"):
        found = _STATE.fullmatch(text)
        if found is None:
            _refuse(reader, name)
        elif name == "state":
            port.state = int(found[1] or found[2])
        else:
            port.physical_state = int(found[1] or found[2])
    else:
        _count(port, name, text, reader)


def _count(port: Port, name: str, text: str, reader: Reader) -> None:
    if not _COUNT.fullmatch(text):
        _refuse(reader, name)
        return
    for counter in COUNTERS:
        if counter.file == name:
            port.counts[counter.column] = int(text)
        elif counter.later_file == name:
            port.later[counter.column] = int(text)


def _refuse(reader: Reader, name: str) -> None:
    reader.wrong["rejected_value", f"{name} of a port is not readable, or no value"] += 1
