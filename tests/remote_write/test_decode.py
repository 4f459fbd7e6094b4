from __future__ import annotations

import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.remote_write import snappy
from collector.remote_write.decode import Decoded, Decoder
from collector.remote_write.messages import message_class
from collector.remote_write.series import Interpreter, RemoteSeries
from gpuledger.errors import BadInput, TooLarge
from tests.remote_write.writing import STALE, card, pack, request_1, request_2

NOW = 1_772_445_600_000


def _told(decoded: Decoded) -> list[tuple[str, str, float, int]]:
    samples = decoded.samples
    return [
        (samples.meanings[series].series.name, samples.meanings[series].gpu_uuid, float(value), int(at))
        for series, value, at in zip(samples.series, samples.values, samples.times_ms, strict=True)
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_samples_come_in_the_order_in_which_they_were_written_cold_and_warm(version: int) -> None:
    series = [
        (card(0), [(NOW, 40.0)]),
        (card(1), [(NOW, 0.0)]),
        (card(0, "DCGM_FI_DEV_POWER_USAGE"), [(NOW, 350.5), (NOW + 1000, -0.0), (NOW - 5, 1e300)]),
        (card(0), [(NOW, 41.0)]),
        (card(2), []),
    ]
    wanted = [
        ("DCGM_FI_DEV_GPU_UTIL", "GPU-0", 40.0, NOW),
        ("DCGM_FI_DEV_GPU_UTIL", "GPU-1", 0.0, NOW),
        ("DCGM_FI_DEV_POWER_USAGE", "GPU-0", 350.5, NOW),
        ("DCGM_FI_DEV_POWER_USAGE", "GPU-0", 0.0, NOW + 1000),
        ("DCGM_FI_DEV_POWER_USAGE", "GPU-0", 1e300, NOW - 5),
        ("DCGM_FI_DEV_GPU_UTIL", "GPU-0", 41.0, NOW),
    ]
    raw = (request_1 if version == 1 else request_2)(series)
    decoder = Decoder()
    for _ in range(3):
        decoded = decoder.version_1(raw, NOW) if version == 1 else decoder.version_2(raw, NOW)
        assert _told(decoded) == wanted
        assert (decoded.received, decoded.refused, decoded.ignored) == (6, {}, {})


@pytest.mark.parametrize("at", [0, 1, 2**35 - 1, 2**35, NOW, 2**42 - 1, 2**42, 2**63 - 1, -1, -(2**63)])
@pytest.mark.parametrize("value", [0.0, 1.5, math.inf])
def test_every_time_is_read_whatever_its_length(at: int, value: float) -> None:
    decoder, raw = Decoder(), request_1([(card(0), [(at, value)]), (card(1), [(NOW, 1.0)])])
    for _ in range(2):
        assert _told(decoder.version_1(raw, NOW))[0][2:] == (value, at)


def test_stale_markers_are_told_from_other_nans_by_their_bits() -> None:
    raw = request_1(
        [(card(0), [(NOW, STALE)]), (card(1), [(NOW, math.nan)]), (card(2), [(NOW, 7.0), (NOW + 1, STALE)])]
    )
    decoder = Decoder()
    for _ in range(2):
        decoded = decoder.version_1(raw, NOW)
        assert [uuid for _, uuid, _, _ in _told(decoded)] == ["GPU-1", "GPU-2"]
        assert math.isnan(decoded.samples.values[0])
        assert (decoded.received, decoded.ignored) == (4, {"stale_marker": 2})


def test_native_histograms_cost_their_series_only() -> None:
    for version, name in ((1, "Request1"), (2, "Request2")):
        message = message_class(name).FromString((request_1 if version == 1 else request_2)([(card(0), [(NOW, 1.0)])]))
        bad = message.timeseries.add()
        bad.CopyFrom(message.timeseries[0])
        bad.histograms.append(b"\x08\x01")
        message.timeseries[0].exemplars.append(b"\x11\x00\x00\x00\x00\x00\x00\x00\x00")
        decoder = Decoder()
        decode = decoder.version_1 if version == 1 else decoder.version_2
        decoded = decode(message.SerializeToString(), NOW)
        assert len(decoded.samples) == 1
        assert (decoded.refused, decoded.ignored) == ({"native histogram": 2}, {"exemplar": 1})


def test_metadata_is_counted_and_what_nobody_reads_is_left_out() -> None:
    raw = request_1(
        [
            ({"__name__": "node_load1", "instance": "n0:9100"}, [(NOW, 1.0), (NOW + 1, 2.0)]),
            ({"__name__": "DCGM_FI_DEV_GPU_UTIL", "instance": "n0:9400"}, [(NOW, 1.0)]),
        ]
    )
    raw += b"\x1a\x04\x08\x02\x12\x00\x1a\x00"
    decoder = Decoder()
    for _ in range(2):
        decoded = decoder.version_1(raw, NOW)
        assert (len(decoded.samples), decoded.received) == (0, 3)
        assert decoded.ignored == {"metadata": 2, "not_used": 3}


def _labelled(*pairs: tuple[bytes, bytes]) -> bytes:
    message = message_class("Request1")()
    for some in (pairs, [(name.encode(), text.encode()) for name, text in sorted(card(9).items())]):
        one = message.timeseries.add()
        for name, value in some:
            one.labels.add(name=name, value=value)
        one.samples.add(timestamp=NOW, value=1.0)
    return bytes(message.SerializeToString())


NAME = (b"__name__", b"DCGM_FI_DEV_GPU_UTIL")


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ([NAME, (b"UUID", b"GPU-0")], "labels not sorted"),
        ([(b"UUID", b"GPU-0"), (b"UUID", b"GPU-1"), NAME], "label twice"),
        ([(b"", b"x"), NAME], "empty label name"),
        ([(b"UUID", b"GPU-0")], "no metric name"),
        ([], "no metric name"),
        ([(b"UUID", b"GPU-0"), (b"__name__", b"")], "no metric name"),
        ([(b"UUID", b"\xff\xfe"), NAME], "label not UTF-8"),
        ([(b"UUID", b"x" * 5000), NAME], "label too long"),
        ([(b"UUID%03d" % number, b"x") for number in range(200)] + [NAME], "too many labels"),
    ],
)
def test_a_series_that_is_not_legal_costs_itself(pairs: list[tuple[bytes, bytes]], reason: str) -> None:
    decoder = Decoder()
    for _ in range(2):
        decoded = decoder.version_1(_labelled(*pairs), NOW)
        assert [uuid for _, uuid, _, _ in _told(decoded)] == ["GPU-9"]
        assert decoded.refused == {reason: 1}


def test_labels_after_the_samples_are_labels_too() -> None:
    label = b"\x0a\x0d\x0a\x04UUID\x12\x05GPU-7"
    name = b"\x0a\x20\x0a\x08__name__\x12\x14DCGM_FI_DEV_GPU_UTIL"
    sample = b"\x12\x10\x09" + struct.pack("<d", 3.0) + b"\x10" + _varint(NOW)
    for body in (label + sample + name, sample + label + name, label + name + sample):
        raw = b"\x0a" + _varint(len(body)) + body
        decoder = Decoder()
        for _ in range(3):
            assert _told(decoder.version_1(raw, NOW)) == [("DCGM_FI_DEV_GPU_UTIL", "GPU-7", 3.0, NOW)]


def _varint(number: int) -> bytes:
    made = bytearray()
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def test_a_longer_series_is_not_taken_for_the_known_one_that_it_begins_with() -> None:
    decoder = Decoder()
    decoder.version_1(request_1([({"UUID": "GPU-7", "__name__": "DCGM_FI_DEV_GPU_UTIL"}, [(NOW, 1.0)])]), NOW)
    labels = {"UUID": "GPU-7", "__name__": "DCGM_FI_DEV_GPU_UTIL", "pod": "p"}
    decoded = decoder.version_1(request_1([(labels, [(NOW, 2.0)])]), NOW)
    assert decoded.samples.meanings[0].series.labels == {"UUID": "GPU-7", "pod": "p"}


@pytest.mark.parametrize(
    "raw",
    [
        b"\x0a",
        b"\x0a\x80",
        b"\x0a\x05ab",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x0b\x00",
        b"\x00\x00",
        b"\x0a\x03\x12\x09a",
        b"\x12",
        b"\x15\x00",
        request_1([(card(0), [(NOW, 1.0)])])[:-1],
    ],
)
def test_bytes_that_are_no_request_are_bad_input(raw: bytes) -> None:
    for decode in (Decoder().version_1, Decoder().version_2):
        if raw.startswith(b"\x0a") and decode.__name__ == "version_2":
            continue
        with pytest.raises(BadInput, match="body"):
            decode(raw, NOW)


def test_version_2_wants_its_symbols() -> None:
    message = message_class("Request2")()
    message.timeseries.add(labels_refs=[1, 2])
    with pytest.raises(BadInput, match="first symbol"):
        Decoder().version_2(message.SerializeToString(), NOW)
    message.symbols.extend([b"", b"a"])
    message.timeseries.add(labels_refs=[1])
    message.timeseries.add(labels_refs=[])
    decoded = Decoder().version_2(message.SerializeToString(), NOW)
    assert decoded.refused == {"label without symbol": 1, "label without value": 1, "no metric name": 1}


def test_a_huge_series_is_refused_unread() -> None:
    raw = request_1([(card(0), [(NOW + number, 1.0) for number in range(70_000)]), (card(1), [(NOW, 1.0)])])
    decoded = Decoder().version_1(raw, NOW)
    assert [uuid for _, uuid, _, _ in _told(decoded)] == ["GPU-1"]
    assert decoded.refused == {"series too large": 1}


def test_a_flood_of_empty_series_is_refused_before_it_costs_memory() -> None:
    with pytest.raises(BadInput, match="too many"):
        Decoder().version_1(b"\x0a\x00" * 300_000, NOW)
    with pytest.raises(BadInput, match="too many"):
        Decoder().version_2(b"\x22\x00" * 300_000, NOW)


def test_both_versions_know_a_series_by_the_same_number_and_replicas_apart() -> None:
    def one(version: int, **more: str) -> RemoteSeries:
        decoder, series = Decoder(), [(card(0, **more), [(NOW, 1.0)])]
        decode = decoder.version_1 if version == 1 else decoder.version_2
        return decode((request_1 if version == 1 else request_2)(series), NOW).samples.meanings[0]

    assert one(1).series_id == one(2).series_id
    assert one(1).series_id != one(1, pod="p").series_id
    assert [one(2, **{name: "a"}).source for name in ("prometheus_replica", "__replica__", "replica")] == [
        "remote_write/a"
    ] * 3
    assert (one(1).source, one(1).target, one(1).node) == ("remote_write", "dcgm/n0:9400", "n0")


def test_an_empty_label_value_is_no_label() -> None:
    interpret = Interpreter().interpret
    first = interpret([(b"UUID", b"GPU-0"), (b"__name__", b"DCGM_FI_DEV_GPU_UTIL"), (b"pod", b"")])
    second = interpret([(b"UUID", b"GPU-0"), (b"__name__", b"DCGM_FI_DEV_GPU_UTIL")])
    assert first is not None
    assert second is not None
    assert first.series_id == second.series_id


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats()), max_size=3),
        ),
        max_size=20,
    )
)
@settings(max_examples=60, deadline=None)
def test_what_was_written_is_what_is_read(series: list[tuple[int, list[tuple[int, float]]]]) -> None:
    written = [(card(number), samples) for number, samples in series]
    wanted = [(f"GPU-{number}", at, struct.pack("<d", value)) for number, samples in series for at, value in samples]
    wanted = [one for one in wanted if one[2] != struct.pack("<d", STALE)]
    decoder = Decoder()
    for decode, raw in (
        (decoder.version_1, request_1(written)),
        (decoder.version_1, request_1(written)),
        (decoder.version_2, request_2(written)),
    ):
        told = [(uuid, at, value) for _, uuid, value, at in _told(decode(raw, NOW))]
        assert [(uuid, at) for uuid, at, _ in told] == [(uuid, at) for uuid, at, _ in wanted]
        values = np.array([struct.unpack("<d", bits)[0] for _, _, bits in wanted])
        assert np.array_equal(np.array([value for _, _, value in told]), values, equal_nan=True)


def test_a_snappy_block_is_bounded_before_it_is_unpacked() -> None:
    with pytest.raises(TooLarge, match="33554432"):
        snappy.decode(bytes.fromhex("8080808001"))
    with pytest.raises(BadInput, match="cannot hold"):
        snappy.decode(_varint(30 * 2**20) + b"\x00" * 100)
    honest = pack(b"0" * (2**20))
    assert len(snappy.decode(honest, 2**20)) == 2**20
    with pytest.raises(TooLarge):
        snappy.decode(honest, 2**20 - 1)


@pytest.mark.parametrize(
    "change", [lambda b: b[:-1], lambda b: b + b"x", lambda b: b[:0] + b"\x05", lambda b: b[:1] + b[2:]]
)
def test_a_broken_block_is_bad_input(change) -> None:
    with pytest.raises(BadInput, match="body"):
        snappy.decode(change(pack(b"a block that says nothing twice, and then some")))


def test_the_best_block_is_not_called_a_lie() -> None:
    zeros = bytes(32 * 2**20)
    assert snappy.decode(bytes(pa.compress(zeros, codec="snappy", asbytes=True))) == zeros
