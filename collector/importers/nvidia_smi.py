"""Imports what `nvidia-smi --query-gpu=... --format=csv` printed into a file, once or every few seconds (`-l`)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from collector.sources.nvidia_smi import Reader, parse
from gpuledger.errors import BadInput
from gpuledger.model import to_table


def read(file: Path, *, node: str, at: datetime, timezone: str = "UTC") -> Iterator[tuple[str, pa.Table]]:
    """(record name, table) of what has rows.

    `at` is when the file was written; where its lines have a `timestamp` they keep it, told in `timezone`. A file of
    several passes says its spacing by itself. Raises BadInput when the file shows no device.
    """
    if at.tzinfo is None:
        raise BadInput("at", "needs a zone")
    text = file.read_bytes().decode("utf-8", errors="replace")
    observation = parse(text, at, Reader(node, interval_seconds=None, zone=_zone(timezone)))
    failed = next((item for item in observation.reads if not item.ok), None)
    if failed is not None:
        raise BadInput(file.name, failed.error or "not readable")
    records: dict[str, Any] = {"source_read": observation.reads, "reading": observation.readings, **observation.others}
    for name, rows in records.items():
        if rows:
            yield name, to_table(name, rows)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise BadInput("timezone", f"{name[:40]!r} is not an IANA time zone") from None
