"""From a request's bytes to samples of known series, version 1 and 2.

A sender writes one sample for each series, so that a version 1 series ends, after its labels, in one of two forms:
a sample with its value (18 bytes) or one whose value is zero, which is left out (9 bytes). What stands before is the
same bytes in every request: one dictionary access says what the series is about, and the samples of all known series
are read at once. Everything else goes through the protobuf library, and its labels are remembered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from collector.remote_write.messages import message_class, read
from collector.remote_write.series import Interpreter, Refused, RemoteSeries, SeriesCache
from collector.remote_write.wire import fields, label_prefix, malformed, messages
from collector.samples import Samples

MAX_SERIES_BYTES = 2**20
"""A series above is refused unread: its samples would become objects one by one."""

STALE_BITS = 0x7FF0000000000002
"""The pattern of the NaN that says "this series has ended". Every other NaN is a value that is no measurement."""

_UNUSED, _UNKNOWN = -1, -2
_TIMESERIES_1 = message_class("TimeSeries1")
_TIMESERIES_2 = message_class("TimeSeries2")
_TAIL, _ZERO_TAIL = 18, 9
_TIME_BYTES = 6  # of a varint of milliseconds between 1971 and 2109
_WEIGHTS = 128.0 ** np.arange(_TIME_BYTES)


@dataclass(slots=True)
class Decoded:
    """What a request holds. `slots` are the cache's, one for each entry of `samples.meanings`.

    `received` counts samples, native histograms included; `refused` those that will not be kept, by reason;
    `ignored` what is left out on purpose: samples nobody reads, stale markers, exemplars, metadata.
    """

    samples: Samples[RemoteSeries]
    slots: npt.NDArray[np.int64]
    received: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)


class Decoder:
    """Decodes requests of all senders. Not safe for threads: one at a time."""

    def __init__(self, cache: SeriesCache | None = None, interpreter: Interpreter | None = None) -> None:
        self.cache = cache or SeriesCache()
        self._interpreter = interpreter or Interpreter()

    def version_1(self, raw: bytes, now_ms: int) -> Decoded:
        """The samples of a `prometheus.WriteRequest`. Raises BadInput for bytes that are none."""
        begins, stops, others = messages(raw, 1)
        rows = _Rows(self.cache, self._interpreter, now_ms)
        rows.ignored["metadata"] += others.get(3, 0)
        ends, values, times = _tails(raw, begins, stops)
        # Calls of C functions only: a loop in Python would take twice as long.
        keys = map(raw.__getitem__, map(slice, begins.tolist(), ends.tolist()))
        slots = np.array(list(map(self.cache.slots.get, keys, repeat(_UNKNOWN))), np.int64)
        slots[ends == stops] = _UNKNOWN  # no sample at its end: the labels alone are known
        for row in np.flatnonzero(slots == _UNKNOWN).tolist():
            rows.read_1(row, raw[begins[row] : stops[row]])
        known = np.flatnonzero(slots >= 0)
        rows.add_known(known, slots[known], values[known], times[known])
        return rows.decoded()

    def version_2(self, raw: bytes, now_ms: int) -> Decoded:
        """The samples of an `io.prometheus.write.v2.Request`. Raises BadInput for bytes that are none."""
        symbols: list[bytes] = []
        bodies: list[bytes] = []
        for number, body in fields(raw, 4, 5):
            (symbols if number == 4 else bodies).append(body)
        if bodies and (not symbols or symbols[0]):
            raise malformed("the first symbol is not the empty text")
        rows = _Rows(self.cache, self._interpreter, now_ms)
        for row, body in enumerate(bodies):
            rows.read_2(row, body, symbols)
        return rows.decoded()


class _Rows:
    """The samples of one request while they are gathered: those of known series at once, the others one by one."""

    def __init__(self, cache: SeriesCache, interpreter: Interpreter, now_ms: int) -> None:
        self._cache, self._interpreter, self._now_ms = cache, interpreter, now_ms
        self._known: tuple[npt.NDArray[Any], ...] = ()
        self._positions: list[int] = []
        self._slots: list[int] = []
        self._values: list[float] = []
        self._times: list[int] = []
        self._received = 0
        self._refused: Counter[str] = Counter()
        self.ignored: Counter[str] = Counter()

    def add_known(self, *columns: npt.NDArray[Any]) -> None:
        """Take position, slot, value and time of samples of known series."""
        self._known = columns
        self._received += len(columns[0])

    def read_1(self, position: int, body: bytes) -> None:
        """Take a version 1 series. Raises BadInput where its bytes are no message."""
        if len(body) > MAX_SERIES_BYTES:
            self._refuse("series too large", 1)
            return
        message = read(_TIMESERIES_1, body)
        end, count = label_prefix(body)
        is_first = count == len(message.labels)  # else labels stand elsewhere too, and the prefix is no key
        pairs = [(label.name, label.value) for label in message.labels]
        self._take(position, message, body[:end] if is_first else b"", lambda: pairs)

    def read_2(self, position: int, body: bytes, symbols: list[bytes]) -> None:
        """Take a version 2 series. Raises BadInput where its bytes are no message."""
        if len(body) > MAX_SERIES_BYTES:
            self._refuse("series too large", 1)
            return
        message = read(_TIMESERIES_2, body)
        try:
            texts = [symbols[reference] for reference in message.labels_refs]
        except IndexError:
            self._refuse("label without symbol", len(message.samples))
            return
        if len(texts) % 2:
            self._refuse("label without value", len(message.samples))
            return
        # No text holds 0xff, and no key of version 1 begins with it.
        key = b"\xff" + b"\xff".join(texts)
        self._take(position, message, key, lambda: list(zip(texts[::2], texts[1::2], strict=True)))

    def _take(
        self, position: int, message: Any, key: bytes, pairs: Callable[[], Sequence[tuple[bytes, bytes]]]
    ) -> None:
        self.ignored["exemplar"] += len(message.exemplars)
        if message.histograms:
            self._refuse("native histogram", len(message.samples) + len(message.histograms))
            return
        try:
            slot = self._slot(key, pairs)
        except Refused as reason:
            self._refuse(str(reason), len(message.samples))
            return
        for sample in message.samples:
            self._positions.append(position)
            self._slots.append(slot)
            self._values.append(sample.value)
            self._times.append(sample.timestamp)
        self._received += len(message.samples)

    def _slot(self, key: bytes, pairs: Callable[[], Sequence[tuple[bytes, bytes]]]) -> int:
        slot = self._cache.slots.get(key)
        if slot is not None:
            return slot
        if key in self._cache.unused:
            return _UNUSED
        labels = pairs()
        series = self._interpreter.interpret(labels)
        key = key or b"\xff" + b"\xff".join(text for pair in labels for text in pair)
        if series is None:
            self._cache.add_unused(key)
            return _UNUSED
        found = self._cache.slots.get(key)
        return self._cache.add(key, series, self._now_ms) if found is None else found

    def _refuse(self, reason: str, samples: int) -> None:
        self._refused[reason] += max(1, samples)
        self._received += max(1, samples)

    def decoded(self) -> Decoded:
        """What was gathered, in the order in which it was written."""
        slow = (
            np.array(self._positions, np.int64),
            np.array(self._slots, np.int64),
            np.array(self._values, np.float64),
            np.array(self._times, np.int64),
        )
        columns = [np.concatenate(pair) for pair in zip(self._known, slow, strict=True)] if self._known else list(slow)
        order = np.argsort(columns[0], kind="stable")
        slots, values, times = (column[order] for column in columns[1:])
        is_used = slots != _UNUSED
        is_stale = is_used & (values.view(np.uint64) == STALE_BITS)
        self.ignored["not_used"] += int((~is_used).sum())
        self.ignored["stale_marker"] += int(is_stale.sum())
        kept = is_used & ~is_stale
        distinct, series = np.unique(slots[kept], return_inverse=True)
        self._cache.touch(distinct, self._now_ms)
        meanings = [known for slot in distinct.tolist() if (known := self._cache.series[slot]) is not None]
        samples = Samples(meanings, series.astype(np.int64), values[kept], times[kept])
        return Decoded(samples, distinct, self._received, +self._refused, +self.ignored)


def _tails(
    raw: bytes, begins: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Where the labels of each series end, if it ends in one sample, and that sample's value and time.

    What a series holds instead is told by its labels' end, which is then no known series' end: whether the bytes
    before it are whole labels is not looked at here.
    """
    padded = np.frombuffer(bytes(_TAIL) + raw, np.uint8)
    tail = np.lib.stride_tricks.sliding_window_view(padded, _TAIL)[stops]
    is_timed = (tail[:, 11] == 0x10) & (tail[:, 17] < 0x80) & (tail[:, 12:17] >= 0x80).all(axis=1)
    length = stops - begins
    is_full = is_timed & (length >= _TAIL) & (tail[:, 0] == 0x12) & (tail[:, 1] == 0x10) & (tail[:, 2] == 0x09)
    is_zero = is_timed & (length >= _ZERO_TAIL) & ~is_full & (tail[:, 9] == 0x12) & (tail[:, 10] == 0x07)
    values = np.ascontiguousarray(tail[:, 3:11]).view(np.float64)[:, 0]
    values = np.where(is_full, values, 0.0)
    times = ((tail[:, 12:] & 0x7F).astype(np.float64) @ _WEIGHTS).astype(np.int64)
    return stops - np.where(is_full, _TAIL, np.where(is_zero, _ZERO_TAIL, 0)), values, times
