"""Takes remote-write requests in: decoded, kept on disk, counted; then answered."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from warehouse.samples import Fate, SampleStore

MAX_EVENT_SUBJECTS = 1000

SAMPLES_TOGETHER = 50_000
"""Requests that wait are kept in one transaction, up to about so many samples."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a request's samples. `ignored` are those that nobody reads; they count as taken."""

    received: int
    stored: int = 0
    repeated: int = 0
    conflicting: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)

    @property
    def written(self) -> int:
        """How many samples need not be sent again and are not lost: for the sender's own count."""
        return self.received - self.refused.total() - self.conflicting


class _Request:
    """A request that waits, and its answer."""

    decoded: Decoded

    def __init__(self, block: bytes, version: int) -> None:
        self.block, self.version = block, version
        self.answer: Future[Receipt] = Future()


class Receiver:
    """One for a service. Requests are decoded one after the other in a thread of its own, and kept together."""

    def __init__(
        self, store: SampleStore, books: PodBooks, settings: Settings, clock: Clock, metrics: ServiceMetrics
    ) -> None:
        self._store, self._books, self._settings, self._clock, self._metrics = store, books, settings, clock, metrics
        self._decoder = Decoder(SeriesCache(per_target=settings.remote_write_series_per_target))
        self._turns = threading.BoundedSemaphore(settings.remote_write_waiting)
        self._requests: deque[_Request] = deque()
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
            return await asyncio.wrap_future(self._submit(block, version))

    def take(self, block: bytes, version: int) -> Receipt:
        """The same for a caller that waits."""
        return self._submit(block, version).result()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._turns.acquire(blocking=False):
            raise Overloaded("too many remote-write requests wait")
        try:
            yield
        finally:
            self._turns.release()

    def _submit(self, block: bytes, version: int) -> Future[Receipt]:
        request = _Request(block, version)
        self._requests.append(request)
        self._worker.submit(self._work)
        return request.answer

    def _work(self) -> None:
        """Take in the requests that wait, together, so that they share one way to the disk."""
        taken: list[_Request] = []
        while self._requests and sum(len(one.decoded.samples) for one in taken) < SAMPLES_TOGETHER:
            request = self._requests.popleft()
            if not request.answer.set_running_or_notify_cancel():
                continue  # the sender has gone
            try:
                request.decoded = self._decode(request)
            except Exception as error:  # whatever one request provokes is its own answer
                request.answer.set_exception(error)
            else:
                taken.append(request)
        try:
            receipts = self._keep([one.decoded for one in taken])
        except Exception as error:  # nothing was kept: all of them may come again
            for one in taken:
                one.answer.set_exception(error)
            return
        for one, receipt in zip(taken, receipts, strict=True):
            self._count(receipt)
            one.answer.set_result(receipt)

    def _decode(self, request: _Request) -> Decoded:
        now_ms = int(self._clock.now().timestamp() * 1000)
        raw = snappy.decode(request.block, self._settings.remote_write_decoded_bytes)
        return (self._decoder.version_1 if request.version == 1 else self._decoder.version_2)(raw, now_ms)

    def _keep(self, requests: Sequence[Decoded]) -> list[Receipt]:
        """Keep the samples of devices and targets, give the books what kube-state-metrics says, count both."""
        cache, tables = self._decoder.cache, []
        fresh: dict[int, RemoteSeries] = {}
        for decoded in requests:
            is_kube, samples = _is_kube(decoded.samples), decoded.samples
            new = np.flatnonzero(~is_kube & ~cache.is_recorded[decoded.slots]).tolist()
            fresh |= {int(decoded.slots[one]): samples.meanings[one] for one in new}
            tables.append(_sample_table(samples, ~is_kube[samples.series]))
        fates = np.empty(0, np.int8)
        if any(table.num_rows for table in tables):
            series = {one.series_id: one for one in fresh.values()}
            fates = self._store.stage(pa.concat_tables(tables), _series_table(list(series.values())))
            cache.is_recorded[list(fresh)] = True
        ends = np.cumsum([table.num_rows for table in tables])[:-1]
        parts = np.split(fates, ends) if requests else []
        return [self._receipt(decoded, part) for decoded, part in zip(requests, parts, strict=True)]

    def _receipt(self, decoded: Decoded, fates: npt.NDArray[np.int8]) -> Receipt:
        count = np.bincount(fates, minlength=len(Fate)).tolist()
        times = Counter({"too old": count[Fate.TOO_OLD], "in the future": count[Fate.IN_THE_FUTURE]})
        refused = decoded.refused + times + self._feed_books(decoded.samples)
        kept = (count[Fate.STORED], count[Fate.REPEATED], count[Fate.CONFLICTING])
        return Receipt(decoded.received, *kept, refused, decoded.ignored)

    def _feed_books(self, samples: Samples[RemoteSeries]) -> Counter[str]:
        is_kube = _is_kube(samples)[samples.series]
        if not is_kube.any():
            return Counter()
        low, high = self._store.accepted_ms()
        is_early, is_late = samples.times_ms < low, samples.times_ms > high
        rows = np.flatnonzero(is_kube & ~is_early & ~is_late).tolist()
        columns = samples.series.tolist(), samples.values.tolist(), samples.times_ms.tolist()
        series, values, times = columns
        self._books.feed((samples.meanings[series[row]].series, values[row], times[row]) for row in rows)
        self._metrics.remote_samples.labels("read", "kube_state_metrics").inc(len(rows))
        refused = {"too old": int((is_kube & is_early).sum()), "in the future": int((is_kube & is_late).sum())}
        return +Counter(refused)

    def _count(self, receipt: Receipt) -> None:
        count = self._metrics.remote_samples
        count.labels("stored", "").inc(receipt.stored)
        count.labels("repeated", "").inc(receipt.repeated)
        count.labels("conflicting", "").inc(receipt.conflicting)
        for outcome, reasons in (("refused", receipt.refused), ("ignored", receipt.ignored)):
            for reason, number in reasons.items():
                count.labels(outcome, reason).inc(number)
        with self._counting:
            for reason, number in receipt.refused.items():
                if reason != "too many series":
                    self._events["refused_sample", SOURCE, reason] += number
            if receipt.conflicting:
                self._events["conflicting_sample", SOURCE, ""] += receipt.conflicting
            if receipt.repeated:
                self._events["repeated_sample", SOURCE, ""] += receipt.repeated
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


def _is_kube(samples: Samples[RemoteSeries]) -> npt.NDArray[np.bool_]:
    return np.array([series.is_kube for series in samples.meanings], np.bool_)


def _sample_table(samples: Samples[RemoteSeries], is_kept: npt.NDArray[np.bool_]) -> pa.Table:
    ids = np.array([series.series_id for series in samples.meanings], np.uint64)
    columns = {"series_id": ids[samples.series], "time_ms": samples.times_ms, "value": samples.values}
    return pa.table({name: column[is_kept] for name, column in columns.items()})


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
