"""Makes readings and sightings of the samples that remote write left: every few seconds, and before a build."""

from __future__ import annotations

import threading

import pyarrow as pa

from collector.remote_write.rows import RowMaker
from gpuledger.app.dirt import Dirt
from gpuledger.clock import Clock
from gpuledger.model import arrow_schema
from warehouse.samples import SampleStore, Waiting


class Assembling:
    """The way from samples to rows. One round at a time; others wait."""

    def __init__(self, store: SampleStore, dirt: Dirt, clock: Clock) -> None:
        self._store, self._dirt, self._clock = store, dirt, clock
        self._maker = RowMaker()
        self._one_at_a_time = threading.Lock()

    def run(self) -> int:
        """Make rows of all samples that wait. Gives how many readings were written."""
        rows = 0
        with self._one_at_a_time:
            while (waiting := self._store.waiting()) is not None:
                rows += self._round(waiting)
        return rows

    def prune(self) -> None:
        """Forget samples that were kept long enough."""
        with self._one_at_a_time:
            self._store.prune()

    def _round(self, waiting: Waiting) -> int:
        unknown = self._maker.unknown(waiting.samples)
        if len(unknown):
            self._maker.learn(self._store.series(unknown))
        now = self._clock.now()
        parts = self._maker.rows(waiting.samples, now)
        readings = _together("reading", [part.readings for part in parts])
        holdings = _together("holding", [part.holdings for part in parts])
        events = _together("quality_event", [*(part.events for part in parts), self._maker.noticed(now)])
        earliest_at = self._store.fill(waiting, readings, holdings, events)
        if earliest_at is not None:
            self._dirt.add(earliest_at, self._clock.now())
        return int(readings.num_rows)


def _together(record: str, tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables([arrow_schema(record).empty_table(), *tables])
