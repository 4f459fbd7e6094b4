"""Mutated remote-write requests through the decoder, and some of them through the whole receiver to rows.

    python fuzz/remote_write.py --seconds 60 [--seed 1]

Nothing but BadInput, no hang, bounded memory. A request reads the same warm as cold. A version 1 request as the
protobuf library itself would write it gives the very samples that the library reads. The first byte of an input says
how the rest is to be taken.
"""

from __future__ import annotations

import random
import struct
import sys
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pyarrow as pa
from google.protobuf.message import DecodeError

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.remote_write import snappy
from collector.remote_write.decode import STALE_BITS, Decoded, Decoder
from collector.remote_write.messages import message_class
from collector.remote_write.series import Interpreter, Refused, SeriesCache
from fuzz._harness import main, mutated
from gpuledger.app.assembling import Assembling
from gpuledger.app.dirt import Dirt
from gpuledger.app.metrics import ServiceMetrics
from gpuledger.app.pod_books import PodBooks
from gpuledger.app.receiving import Receiver
from gpuledger.attribution.rules import Rules
from gpuledger.config import Settings
from gpuledger.errors import BadInput
from gpuledger.testing import FakeClock
from warehouse import Warehouse
from warehouse.samples import SampleStore

FIXTURES = Path(__file__).resolve().parents[2] / "shared" / "fixtures" / "exposition"
CLOCK = FakeClock(datetime(2026, 3, 2, 10, tzinfo=UTC))
NOW_MS = int(CLOCK.now().timestamp() * 1000)
MAX_INPUT = 60_000
BLOCK, WHOLE_WAY, VERSION_2 = 1, 2, 4
TOKENS = (
    b"\x0a\x00",
    b"\x12\x10\x09" + struct.pack("<d", 1.0) + b"\x10" + b"\xc0\xb1\xe0\xd5\xca\x33",
    b"\x12\x07\x10\xc0\xb1\xe0\xd5\xca\x33",
    b"\x12\x00",
    b"\x1a\x02\x08\x01",
    b"\x22\x02\x08\x01",
    b"\x2a\x00",
    b"\x80",
    b"\xff" * 10,
    b"\x00",
    b"__name__",
    b"UUID",
    b"\x0a\x08\x0a\x04UUID\x12\x00",
    struct.pack("<Q", STALE_BITS),
)


def _labels(number: int) -> dict[bytes, bytes]:
    metric = (b"DCGM_FI_DEV_GPU_UTIL", b"DCGM_FI_DEV_POWER_USAGE", b"up", b"node_load1", b"kube_pod_info")[number % 5]
    labels = {b"UUID": b"GPU-%d" % (number % 3), b"__name__": metric, b"instance": b"n%d:9400" % (number % 2)}
    if number % 4 == 1:
        labels |= {b"GPU_I_ID": b"7", b"GPU_I_PROFILE": b"1g.10gb"}
    if number % 4 == 2:
        labels |= {b"namespace": "训练".encode(), b"pod": b'a"b', b"uid": b"u1"}
    return dict(sorted(labels.items()))


@cache
def corpus() -> tuple[bytes, ...]:
    """Whole requests, packed by nothing, each behind its first byte; the published ones where they are there."""
    first, second = message_class("Request1")(), message_class("Request2")()
    symbols: dict[bytes, int] = {b"": 0}
    for number in range(20):
        one, other = first.timeseries.add(), second.timeseries.add()
        for pair in _labels(number).items():
            one.labels.add(name=pair[0], value=pair[1])
            other.labels_refs.extend(symbols.setdefault(text, len(symbols)) for text in pair)
        for tick in range(1 + number % 2):
            value = (0.0, 1.0, 97.5)[number % 3]
            one.samples.add(value=value, timestamp=NOW_MS + tick)
            other.samples.add(value=value, timestamp=NOW_MS + tick)
    second.symbols.extend(symbols)
    seeds = [b"\x00" + first.SerializeToString(), bytes([VERSION_2]) + second.SerializeToString()]
    for name, how in (("remote_write_v1_dcgm8", 0), ("remote_write_v2_dcgm8", VERSION_2)):
        file = FIXTURES / f"{name}.snappy"
        if file.is_file():
            seeds.append(bytes([how]) + snappy.decode(file.read_bytes())[:MAX_INPUT])
    return tuple(seeds)


def make(rng: random.Random) -> bytes:
    """A mutated request, or a mutated packed one."""
    seed = rng.choice(corpus())
    how = seed[0] | (WHOLE_WAY if rng.random() < 0.1 else 0)
    if rng.random() < 0.2:
        block = pa.compress(seed[1:], codec="snappy", asbytes=True)
        return bytes([how | BLOCK]) + mutated(rng, block, TOKENS)[:MAX_INPUT]
    return bytes([how]) + mutated(rng, seed[1:], TOKENS)[:MAX_INPUT]


@cache
def _receiver() -> tuple[Receiver, Assembling]:
    settings = Settings(remote_write_series_per_target=1000)
    store = SampleStore(Warehouse.open(None, settings, CLOCK), settings, CLOCK)
    books = PodBooks(Rules(), lambda *_: None)
    return Receiver(store, books, settings, CLOCK, ServiceMetrics()), Assembling(store, Dirt(timedelta()), CLOCK)


def check(content: bytes) -> None:
    """Raise for anything but BadInput, and where two ways of reading disagree."""
    how, raw = content[0], content[1:]
    try:
        if how & BLOCK:
            raw = snappy.decode(raw, 2**20)
        _compare(raw, 2 if how & VERSION_2 else 1)
        if how & WHOLE_WAY:
            _take(raw, 2 if how & VERSION_2 else 1)
    except BadInput:
        return


def _compare(raw: bytes, version: int) -> None:
    decoder = Decoder(SeriesCache(per_target=5000))
    decode = decoder.version_1 if version == 1 else decoder.version_2
    cold, warm = decode(raw, NOW_MS), decode(raw, NOW_MS)
    assert _told(cold) == _told(warm), "warm is not cold"
    assert (cold.received, cold.refused, cold.ignored) == (warm.received, warm.refused, warm.ignored)
    assert cold.received >= len(cold.samples)
    if version == 1:
        wanted = _reference(raw)
        assert wanted is None or _told(cold) == wanted, "not what the library reads"


def _told(decoded: Decoded) -> list[tuple[int, bytes, int]]:
    samples = decoded.samples
    columns = zip(samples.series.tolist(), samples.values.tolist(), samples.times_ms.tolist(), strict=True)
    return [(samples.meanings[one].series_id, struct.pack("<d", value), at) for one, value, at in columns]


def _reference(raw: bytes) -> list[tuple[int, bytes, int]] | None:
    """What the library reads, where it would write the same bytes; else None."""
    kind, interpreter = message_class("Request1"), Interpreter()
    try:
        message = kind.FromString(raw)
    except DecodeError:
        return None
    if message.SerializeToString() != raw:
        return None
    found = []
    for one in message.timeseries:
        if one.histograms:
            continue
        try:
            series = interpreter.interpret([(label.name, label.value) for label in one.labels])
        except Refused:
            continue
        if series is not None:
            found += [(series.series_id, struct.pack("<d", sample.value), sample.timestamp) for sample in one.samples]
    return [sample for sample in found if sample[1] != struct.pack("<Q", STALE_BITS)]


def _take(raw: bytes, version: int) -> None:
    receiver, assembling = _receiver()
    CLOCK.advance(0.5)
    receiver.take(pa.compress(raw, codec="snappy", asbytes=True), version)
    assembling.run()
    if CLOCK.now().second == 0:
        assembling.prune()


if __name__ == "__main__":
    main("remote_write", make, check)
