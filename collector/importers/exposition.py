"""Imports one saved page of dcgm-exporter, as a scrape at a given instant would have read it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from collector.sources.dcgm import Target, parse
from gpuledger.errors import BadInput
from gpuledger.model import to_table

INTERVAL_SECONDS = 60.0


def read(file: Path, *, node: str | None = None, at: datetime) -> Iterator[tuple[str, pa.Table]]:
    """(record name, table) for `source_read`, `reading`, `holding` and `quality_event`, those that have rows.

    `at` is when the page was saved; samples with timestamps of their own keep them. `node` names the node where the
    page should not be asked. Raises BadInput when the page shows nothing.
    """
    if at.tzinfo is None:
        raise BadInput("at", "needs a zone")
    target = Target(node=node, interval_seconds=INTERVAL_SECONDS, max_skew_seconds=None)
    target.name = file.name
    observation = parse(file.read_bytes(), at, target)
    failed = next((item for item in observation.reads if not item.ok), None)
    if failed is not None:
        raise BadInput(file.name, failed.error or "not readable")
    records = {
        "source_read": observation.reads,
        "reading": observation.readings,
        "holding": observation.holdings,
        **observation.others,
    }
    for name, rows in records.items():
        if rows:
            yield name, to_table(name, rows)
