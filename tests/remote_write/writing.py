"""What a sender does: requests of both versions, made with the protobuf library, packed and posted."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import httpx
import pyarrow as pa

from collector.remote_write.messages import message_class

V1 = "application/x-protobuf"
V2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
PATH = "/api/v1/write"

STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]

Labels = Mapping[str, str]
Written = tuple[Labels, Sequence[tuple[int, float]]]
"""Labels with the metric's name among them, and (milliseconds, value)."""


def request_1(series: Iterable[Written]) -> bytes:
    made = message_class("Request1")()
    for labels, samples in series:
        one = made.timeseries.add()
        for name, value in sorted(labels.items()):
            one.labels.add(name=name.encode(), value=value.encode())
        for at, number in samples:
            one.samples.add(timestamp=at, value=number)
    return bytes(made.SerializeToString())


def request_2(series: Iterable[Written]) -> bytes:
    made, numbers = message_class("Request2")(), {b"": 0}
    for labels, samples in series:
        one = made.timeseries.add()
        for pair in sorted(labels.items()):
            one.labels_refs.extend(numbers.setdefault(text.encode(), len(numbers)) for text in pair)
        for at, value in samples:
            one.samples.add(timestamp=at, value=value)
    made.symbols.extend(numbers)
    return bytes(made.SerializeToString())


def pack(raw: bytes) -> bytes:
    return bytes(pa.compress(raw, codec="snappy", asbytes=True))


def post(http: httpx.Client, raw: bytes, content_type: str = V1, **headers: str) -> httpx.Response:
    return post_block(http, pack(raw), content_type, **headers)


def post_block(http: httpx.Client, block: bytes, content_type: str = V1, **headers: str) -> httpx.Response:
    given = {"content-type": content_type, "content-encoding": "snappy"} | headers
    return http.post(PATH, content=block, headers=given)


def card(number: int = 0, metric: str = "DCGM_FI_DEV_GPU_UTIL", **more: str) -> dict[str, str]:
    labels = {"__name__": metric, "UUID": f"GPU-{number}", "Hostname": "n0", "job": "dcgm", "instance": "n0:9400"}
    return labels | {"modelName": "NVIDIA H100 80GB HBM3", "gpu": str(number)} | more


def rows(api: Any, table: str, *without: str) -> list[dict[str, Any]]:
    """All rows of a table in a certain order, without some columns."""
    with api.service.warehouse.reading() as cursor:
        return in_order(cursor.sql(f'from "{table}"').to_arrow_table().to_pylist(), *without)


def in_order(found: Iterable[dict[str, Any]], *without: str) -> list[dict[str, Any]]:
    """Rows sorted by the instant and by what they say, without some columns."""
    kept = [{name: value for name, value in row.items() if name not in without} for row in found]
    return sorted(kept, key=lambda row: (str(row.get("ts", "")), str(row)))
