"""The series that senders write: what each is about, remembered under its raw labels, with a bound for each target."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collector.devices.subject import DeviceSeries
from collector.exporters import DeviceReader, is_of_device
from collector.exposition import MAX_SERIES, Series
from collector.kube_state_metrics.book import METRICS as KUBE_METRICS

SOURCE = "remote_write"
MAX_TOTAL_SERIES = 1_000_000
IDLE_MS = 600_000
"""A series not written for this long makes room for a new one of its target."""
FORGOTTEN_MS = 3_600_000
"""A series not written for this long is written down anew, since the record of it may have been removed."""
KUBE_FACTOR = 4
"""kube-state-metrics speaks for a whole cluster, and may write so many times the series of another target."""
MAX_LABEL_BYTES = 4096
MAX_LABELS = 128

_REPLICAS = ("prometheus_replica", "__replica__", "replica")
_MAX_LABEL_SETS = 100_000


class Refused(ValueError):
    """A series that is not legal; its text is the reason."""


@dataclass(frozen=True, slots=True)
class RemoteSeries:
    """One series that is used.

    `series_id` is a hash of the label set, the same in every process. `target` is its job and instance; `source` the
    name of the way in, with the replica of a pair of senders. `device` says what a device's metric measures; it is
    None for `up` and for kube-state-metrics. `gpu_uuid` is empty, `node` None, where it names none.
    """

    series_id: int
    series: Series
    target: str
    source: str
    device: DeviceSeries | None = None

    @property
    def gpu_uuid(self) -> str:
        """The card that it is about, or empty."""
        return self.device.subject.gpu_uuid if self.device else ""

    @property
    def node(self) -> str | None:
        """The node that its labels name."""
        return self.device.subject.node if self.device else None

    @property
    def is_kube(self) -> bool:
        """Whether kube-state-metrics wrote it."""
        return self.series.name in KUBE_METRICS


class Interpreter:
    """Says what a label set is about. Series of one card share their labels, so these are kept once."""

    def __init__(self, reader: DeviceReader | None = None) -> None:
        self._reader = reader or DeviceReader()
        self._label_sets: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}

    def interpret(self, pairs: Sequence[tuple[bytes, bytes]]) -> RemoteSeries | None:
        """The series of `pairs` (name, value), or None where it is of no use. Raises Refused."""
        checked = _checked(pairs)
        name = dict(checked).get("__name__", "")
        if not name:
            raise Refused("no metric name")
        if not (is_of_device(name) or name == "up" or name in KUBE_METRICS):
            return None
        labels = self._shared(tuple(pair for pair in checked if pair[0] != "__name__"))
        series = Series(name, labels)
        device = self._reader.read(series)
        if device is None and is_of_device(name):
            return None
        return RemoteSeries(series_id(checked), series, _target(labels), _source(labels), device)

    def _shared(self, pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
        if len(self._label_sets) >= _MAX_LABEL_SETS:
            self._label_sets.clear()
        return self._label_sets.setdefault(pairs, dict(pairs))


def _checked(pairs: Sequence[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """The labels as text, without empty ones. Raises Refused where they are not as the protocol wants them."""
    if len(pairs) > MAX_LABELS:
        raise Refused("too many labels")
    before = b""
    for name, value in pairs:
        if not name:
            raise Refused("empty label name")
        if name <= before:
            raise Refused("label twice" if name == before else "labels not sorted")
        if len(name) > MAX_LABEL_BYTES or len(value) > MAX_LABEL_BYTES:
            raise Refused("label too long")
        before = name
    try:
        return [(name.decode(), value.decode()) for name, value in pairs if value]
    except UnicodeDecodeError:
        raise Refused("label not UTF-8") from None


def series_id(labels: Sequence[tuple[str, str]]) -> int:
    """A 64-bit hash of sorted labels."""
    text = "".join(f"{name}\xff{value}\xfe" for name, value in labels)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _target(labels: dict[str, str]) -> str:
    return "/".join(labels[name] for name in ("job", "instance") if name in labels) or "unknown"


def _source(labels: dict[str, str]) -> str:
    replica = next((labels[name] for name in _REPLICAS if name in labels), "")
    return f"{SOURCE}/{replica}" if replica else SOURCE


class SeriesCache:
    """Known series by their raw labels. A number, the slot, stands for each.

    A target may have `per_target` series that were written in the last ten minutes, and all together `total`; of a
    target at its bound, new series are refused, so that one target's labels cost no other target anything.
    `too_many` counts refusals by target. Series that are of no use are remembered apart, as many as `total`.
    """

    def __init__(self, *, per_target: int = MAX_SERIES, total: int = MAX_TOTAL_SERIES) -> None:
        self._per_target, self._total = per_target, total
        self.slots: dict[bytes, int] = {}
        self.unused: set[bytes] = set()
        self.series: list[RemoteSeries | None] = []
        self.too_many: Counter[str] = Counter()
        self._keys: list[bytes] = []
        self._free: list[int] = []
        self._seen_ms = np.zeros(1024, np.int64)
        self._target = np.zeros(1024, np.int64)
        self.is_recorded = np.zeros(1024, np.bool_)
        self._targets: dict[str, int] = {}
        self._sizes: Counter[int] = Counter()
        self._full_until_ms: dict[int, int] = {}

    def add_unused(self, key: bytes) -> None:
        """Remember that the series of `key` is of no use."""
        if len(self.unused) >= self._total:
            self.unused.clear()
        self.unused.add(key)

    def add(self, key: bytes, series: RemoteSeries, now_ms: int) -> int:
        """The new series' slot. Raises Refused at its target's bound, or at the bound of all."""
        target = self._targets.setdefault(series.target, len(self._targets))
        bound = self._per_target * (KUBE_FACTOR if series.is_kube else 1)
        if self._sizes[target] >= bound or len(self.slots) >= self._total:
            self._make_room(target, now_ms)
        if self._sizes[target] >= bound or len(self.slots) >= self._total:
            self.too_many[series.target] += 1
            raise Refused("too many series")
        slot = self._free.pop() if self._free else self._grow()
        self.slots[key], self.series[slot], self._keys[slot] = slot, series, key
        self._seen_ms[slot], self._target[slot], self.is_recorded[slot] = now_ms, target, False
        self._sizes[target] += 1
        return slot

    def touch(self, slots: npt.NDArray[np.int64], now_ms: int) -> None:
        """Note that `slots` were written at `now_ms`."""
        self.is_recorded[slots[now_ms - self._seen_ms[slots] > FORGOTTEN_MS]] = False
        self._seen_ms[slots] = now_ms

    def _grow(self) -> int:
        slot = len(self.series)
        self.series.append(None)
        self._keys.append(b"")
        if slot >= len(self._seen_ms):
            self._seen_ms, self._target = np.resize(self._seen_ms, 2 * slot), np.resize(self._target, 2 * slot)
            self.is_recorded = np.resize(self.is_recorded, 2 * slot)
        return slot

    def _make_room(self, target: int, now_ms: int) -> None:
        """Forget the target's idle series. Not tried again before one more of them can be idle."""
        if now_ms < self._full_until_ms.get(target, 0):
            return
        count = len(self.series)
        is_own = self._target[:count] == target
        is_own[self._free] = False
        for slot in np.flatnonzero(is_own & (self._seen_ms[:count] <= now_ms - IDLE_MS)).tolist():
            del self.slots[self._keys[slot]]
            self.series[slot], self._keys[slot], is_own[slot] = None, b"", False
            self._free.append(slot)
            self._sizes[target] -= 1
        seen = self._seen_ms[:count][is_own]
        self._full_until_ms[target] = int(seen.min()) + IDLE_MS if len(seen) else now_ms
