"""Fragmentation over time: one snapshot at the start of each hour, as rows of `fragmentation_hour`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from analyzers.fragmentation.shapes import WEIGHTINGS
from analyzers.fragmentation.slots import GANG_GPUS
from analyzers.fragmentation.snapshot import BASES, Snapshot, take_snapshot
from gpuledger.model import Window
from gpuledger.ports import QueryRunner

SCHEMA = pa.schema(
    [
        ("hour_at", pa.timestamp("us", tz="UTC")),
        ("pool", pa.string()),
        ("measure", pa.string()),
        ("name", pa.string()),
        ("gang_gpus", pa.int64()),
        ("value", pa.float64()),
    ]
)
"""Columns of `fragmentation_hour`; sql/schema/0010_fragmentation.sql says what each measure is."""

_HOUR = timedelta(hours=1)


def snapshot_hours(runner: QueryRunner, window: Window, options: Mapping[str, Any] | None = None) -> pa.Table:
    """A snapshot at each whole hour in [`from_at`, `to_at`). Past hours give what would have been given then.

    `options` are those of `take_snapshot`. An hour at which no card was in service has no rows.
    """
    rows: list[dict[str, Any]] = []
    hour_at = window.whole_hours().from_at
    hour_at += _HOUR if hour_at < window.from_at else timedelta()
    while hour_at < window.to_at:
        rows += hour_rows(take_snapshot(runner, hour_at, **(options or {})), hour_at)
        hour_at += _HOUR
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def hour_rows(taken: Snapshot, hour_at: datetime) -> Iterator[dict[str, Any]]:
    """The rows of one snapshot."""

    def row(pool: str, measure: str, name: str, value: float | None, gang_gpus: int = 0) -> dict[str, Any]:
        return {
            "hour_at": hour_at,
            "pool": pool,
            "measure": measure,
            "name": name,
            "gang_gpus": gang_gpus,
            "value": value,
        }

    cluster = taken.cluster
    for found in taken.free_gpus_by_block().iter_rows(named=True):
        yield row(found["pool"], "free", found["name"], found["gpus"])
    for pool in sorted(set(cluster.pool)):
        is_in = cluster.pool == pool
        of_pool = is_in[cluster.card_node]
        yield row(pool, "total", "in_service", float(of_pool.sum()))
        yield row(pool, "total", "set_aside", float((of_pool & cluster.is_set_aside).sum()))
        for basis in BASES:
            for weighting in WEIGHTINGS:
                value = taken.indexes[basis].total(weighting, is_in=is_in)
                yield row(pool, f"fgd_{basis}", weighting, value)
    for found in taken.placeable().iter_rows(named=True):
        yield row(found["pool"], "slots", found["level"], float(found["slot_count"]), found["gang_gpus"])
        if found["gang_gpus"] == GANG_GPUS[0]:
            yield row(found["pool"], "largest_gang", found["level"], float(found["largest_gang_gpus"]))
