"""Rows as JSON and Arrow: times in ISO 8601, what is not a number as null."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from gpuledger.errors import BadInput

ARROW_STREAM = "application/vnd.apache.arrow.stream"

_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""Without it a stream that was cut between two of its batches looks like a whole one."""


def plain(value: Any) -> Any:
    """`value` in JSON's own types. NaN and infinities become null: JSON has no word for them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def to_json(value: Any) -> str:
    """`value` as JSON text, Chinese and all."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def to_arrow_stream(table: pa.Table) -> bytes:
    """`table` as an Arrow IPC stream, zstd."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def from_arrow_stream(body: bytes, max_bytes: int) -> pa.Table:
    """The table in an Arrow IPC stream. Raises BadInput for anything else, or when it holds more than `max_bytes`."""
    batches, held = [], 0
    if not body.endswith(_END_OF_STREAM):
        raise BadInput("body", "is not a whole Arrow IPC stream: it has no end-of-stream marker")
    try:
        with pa.ipc.open_stream(body) as reader:
            schema = reader.schema
            for batch in reader:
                batch.validate(full=True)
                held += batch.nbytes
                if held > max_bytes:
                    raise BadInput("body", f"holds more than {max_bytes} bytes when decoded")
                batches.append(batch)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput("body", f"is not a whole Arrow IPC stream: {str(error)[:200]}") from error
    return pa.Table.from_batches(batches, schema)
