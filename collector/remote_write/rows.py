"""From samples that were kept, with the labels of their series, to whole records: for each source of them apart."""

from __future__ import annotations

import json
import typing
from datetime import datetime

import numpy as np
import polars as pl
import pyarrow as pa

from collector.devices.assemble import Assembled, Options, assemble
from collector.devices.subject import DeviceSeries
from collector.exporters import DeviceReader
from collector.exposition import Series
from collector.remote_write.series import SOURCE
from collector.samples import Samples
from gpuledger.model import to_table

_MAX_SERIES = 2_000_000
_TOLD = ("renamed_metric", "exporter_labels")


class RowMaker:
    """Remembers what series are about. Not safe for threads: one at a time."""

    def __init__(self) -> None:
        self._reader = DeviceReader()
        self._meanings: dict[int, DeviceSeries | None] = {}

    def unknown(self, samples: pa.Table) -> pa.Array:
        """The series (uint64) of `samples` that `learn` was not told of yet."""
        asked = samples["series_id"].unique().to_pylist()
        if len(self._meanings) > _MAX_SERIES:
            self._meanings.clear()
        return pa.array([one for one in asked if one not in self._meanings], pa.uint64())

    def learn(self, series: pa.Table) -> None:
        """Note name and labels (JSON) of series by their series_id."""
        for one in series.to_pylist():
            written = Series(one["name"], json.loads(one["labels"]))
            self._meanings[one["series_id"]] = self._reader.read(written)

    def noticed(self, now: datetime) -> pa.Table:
        """What names and labels of series gave cause to tell since the last call: each name is told once."""
        events = self._reader.take_events(now, SOURCE, SOURCE)
        return to_table("quality_event", [event for event in events if event.kind in _TOLD])

    def rows(self, samples: pa.Table, now: datetime) -> list[Assembled]:
        """The records of `samples` (series_id, ts, value, source), one part for each source."""
        frame = typing.cast("pl.DataFrame", pl.from_arrow(samples)).sort("source", "ts", "series_id")
        parts = frame.partition_by("source", as_dict=True)
        return [assemble(self._samples(part), self._options(str(key[0]), now)) for key, part in parts.items()]

    def _options(self, source: str, now: datetime) -> Options:
        return Options(now=now, source=source, holder=self._reader.holder)

    def _samples(self, part: pl.DataFrame) -> Samples[DeviceSeries]:
        distinct, series = np.unique(part["series_id"].to_numpy(), return_inverse=True)
        found = [self._meanings.get(one) for one in distinct.tolist()]
        is_known = np.array([meaning is not None for meaning in found], np.bool_)
        number = np.cumsum(is_known) - 1
        kept = is_known[series]
        times = part["ts"].dt.timestamp("ms").to_numpy()
        return Samples(
            [meaning for meaning in found if meaning is not None],
            number[series[kept]].astype(np.int64),
            part["value"].to_numpy()[kept],
            times[kept].astype(np.int64),
        )
