"""One snapshot as the book reads it: frames, and what can be said of that which it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import polars as pl

from gpuledger.app.schedulers.rows import empty
from gpuledger.ports import SnapshotScope


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one snapshot shows, and when what it lacks ended: at `ended_at`, or not as far as could be seen.

    `hidden` are queues that may be where it could not see.
    """

    taken_at: datetime
    ended_at: datetime
    scope: SnapshotScope
    listed: Mapping[str, pl.DataFrame]
    hidden: frozenset[str] = frozenset()

    def is_whole(self, record: str) -> bool:
        """Whether what is missing of `record` has ended."""
        return record in self.listed and record not in self.scope.unlisted

    def of(self, record: str) -> pl.DataFrame:
        """The listed rows of `record`; none where it was not listed."""
        return self.listed[record] if record in self.listed else empty(record)

    def visible(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Of `rows` with a namespace those that would have been listed."""
        if not self.scope.namespaces:
            return rows
        return rows.filter(pl.col("namespace").is_in(list(self.scope.namespaces)))

    def visible_work(self, rows: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
        """Of `rows` of workloads, whose namespaces are `places`, those that would have been listed."""
        if not self.scope.namespaces:
            return rows
        return rows.join(self.visible(places).select("workload_id"), on="workload_id", how="semi")

    def visible_queues(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Of `rows` of queues those that would have been listed."""
        return rows.filter(~pl.col("queue").is_in(list(self.hidden))) if self.hidden else rows
