"""Takes remote-write requests in: decoded, kept on disk, counted; then answered."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collector.remote_write import snappy
from collector.remote_write.decode import Decoded, Decoder
from collector.remote_write.series import SOURCE, RemoteSeries, SeriesCache
from collector.samples import Samples
from gpuledger.app.metrics import ServiceMetrics
from gpuledger.app.pod_books import PodBooks
from gpuledger.clock import Clock
from gpuledger.config import Settings
from gpuledger.errors import Overloaded
from gpuledger.model import QualityEvent, to_table
from warehouse.samples import IN_THE_FUTURE, TOO_OLD, SampleStore, Staged

MAX_EVENT_SUBJECTS = 1000


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a request's samples. `ignored` are those that nobody reads; they count as taken."""

    received: int
    staged: Staged
    refused: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)

    @property
    def written(self) -> int:
        """How many samples need not be sent again and are not lost: for the sender's own count."""
        return self.received - self.refused.total() - self.staged.conflicting


class Receiver:
    """One for a service. Requests are decoded and kept one after the other, in a thread of its own."""

    def __init__(
        self, store: SampleStore, books: PodBooks, settings: Settings, clock: Clock, metrics: ServiceMetrics
    ) -> None:
        self._store, self._books, self._settings, self._clock, self._metrics = store, books, settings, clock, metrics
        self._decoder = Decoder(SeriesCache(per_target=settings.remote_write_series_per_target))
        self._turns = threading.BoundedSemaphore(settings.remote_write_waiting)
        self._worker = ThreadPoolExecutor(1, "remote-write")
        self._events: Counter[tuple[str, str, str]] = Counter()
        self._counting = threading.Lock()

    def close(self) -> None:
        """Let the request in hand end."""
        self._worker.shutdown()

    def check(self, block: bytes) -> None:
        """Raise TooLarge or BadInput for a body that declares what it may not, before it waits for its turn."""
        snappy.declared_size(block, self._settings.remote_write_decoded_bytes)

    async def receive(self, block: bytes, version: int) -> Receipt:
        """Take a request in; what it holds is on disk when this returns.

        Raises Overloaded when too many wait, BadInput when nothing of it can be read, WarehouseError when nothing
        could be kept.
        """
        with self._turn():
            return await asyncio.wrap_future(self._worker.submit(self.take, block, version))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._turns.acquire(blocking=False):
            raise Overloaded("too many remote-write requests wait")
        try:
            yield
        finally:
            self._turns.release()

    def take(self, block: bytes, version: int) -> Receipt:
        """The same in this thread. Not safe for several at once."""
        now_ms = int(self._clock.now().timestamp() * 1000)
        raw = snappy.decode(block, self._settings.remote_write_decoded_bytes)
        decode = self._decoder.version_1 if version == 1 else self._decoder.version_2
        decoded = decode(raw, now_ms)
        staged = self._keep(decoded)
        refused = decoded.refused + Counter(staged.refused)
        receipt = Receipt(decoded.received, staged, refused, decoded.ignored)
        self._count(receipt)
        return receipt

    def _keep(self, decoded: Decoded) -> Staged:
        """Keep the samples of devices and targets, and give the books what kube-state-metrics says."""
        cache, samples = self._decoder.cache, decoded.samples
        is_kube = np.array([series.is_kube for series in samples.meanings], np.bool_)
        fresh = np.flatnonzero(~is_kube & ~cache.is_recorded[decoded.slots])
        ids = np.array([series.series_id for series in samples.meanings], np.uint64)
        kept = ~is_kube[samples.series]
        columns = {"series_id": ids[samples.series], "time_ms": samples.times_ms, "value": samples.values}
        staged = Staged()
        if kept.any():
            table = pa.table({name: column[kept] for name, column in columns.items()})
            staged = self._store.stage(table, _series_table([samples.meanings[one] for one in fresh.tolist()]))
            cache.is_recorded[decoded.slots[fresh]] = True
        if kept.all():
            return staged
        return replace(staged, refused=Counter(staged.refused) + self._feed_books(samples, ~kept))

    def _feed_books(self, samples: Samples[RemoteSeries], is_kube: npt.NDArray[np.bool_]) -> Counter[str]:
        low, high = self._store.accepted_ms()
        is_early, is_late = samples.times_ms < low, samples.times_ms > high
        rows = np.flatnonzero(is_kube & ~is_early & ~is_late).tolist()
        self._books.feed(
            (
                samples.meanings[samples.series[row]].series,
                float(samples.values[row]),
                int(samples.times_ms[row]),
            )
            for row in rows
        )
        self._metrics.remote_samples.labels("read", "kube_state_metrics").inc(len(rows))
        refused = {TOO_OLD: int((is_kube & is_early).sum()), IN_THE_FUTURE: int((is_kube & is_late).sum())}
        return +Counter(refused)

    def _count(self, receipt: Receipt) -> None:
        count = self._metrics.remote_samples
        count.labels("stored", "").inc(receipt.staged.stored)
        count.labels("repeated", "").inc(receipt.staged.repeated)
        count.labels("conflicting", "").inc(receipt.staged.conflicting)
        for outcome, reasons in (("refused", receipt.refused), ("ignored", receipt.ignored)):
            for reason, number in reasons.items():
                count.labels(outcome, reason).inc(number)
        with self._counting:
            for reason, number in receipt.refused.items():
                if reason != "too many series":
                    self._events["refused_sample", SOURCE, reason] += number
            if receipt.staged.conflicting:
                self._events["conflicting_sample", SOURCE, ""] += receipt.staged.conflicting
            if receipt.staged.repeated:
                self._events["repeated_sample", SOURCE, ""] += receipt.staged.repeated
            for target, number in self._decoder.cache.too_many.items():
                known = ("too_many_series", target, "") in self._events or len(self._events) < MAX_EVENT_SUBJECTS
                self._events["too_many_series", target if known else "others", ""] += number
            self._decoder.cache.too_many.clear()

    def events(self, now: datetime) -> pa.Table:
        """What was wrong since this was last asked, as quality events of `now`."""
        with self._counting:
            counted, self._events = self._events, Counter()
        return to_table(
            "quality_event",
            [
                QualityEvent(
                    ts=now,
                    source=SOURCE,
                    subject_kind="target",
                    subject=subject,
                    kind=kind,
                    detail=detail,
                    count=count,
                )
                for (kind, subject, detail), count in counted.items()
            ],
        )


def _series_table(series: Sequence[RemoteSeries]) -> pa.Table:
    columns: dict[str, tuple[pa.DataType, Callable[[RemoteSeries], object]]] = {
        "series_id": (pa.uint64(), lambda one: one.series_id),
        "name": (pa.string(), lambda one: one.series.name),
        "labels": (pa.string(), lambda one: json.dumps(dict(one.series.labels), ensure_ascii=False)),
        "target": (pa.string(), lambda one: one.target),
        "source": (pa.string(), lambda one: one.source),
        "gpu_uuid": (pa.string(), lambda one: one.gpu_uuid),
        "node": (pa.string(), lambda one: one.node),
    }
    return pa.table({name: pa.array(map(read, series), kind) for name, (kind, read) in columns.items()})
