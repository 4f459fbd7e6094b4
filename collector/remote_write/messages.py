"""The two versions' messages, as far as they are read, declared in code: no compiler and no generated file.

Only what becomes a series is declared. Texts are bytes, so that one bad text costs its series and not the request;
histograms and exemplars are bytes, because they are counted and not read. Fields not declared are skipped.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from collector.remote_write.wire import malformed

_PACKAGE = "gpuledger.remote_write"
_FIELD = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    "double": _FIELD.TYPE_DOUBLE,
    "int64": _FIELD.TYPE_INT64,
    "uint32": _FIELD.TYPE_UINT32,
    "bytes": _FIELD.TYPE_BYTES,
}

_MESSAGES: dict[str, tuple[tuple[str, int, str, bool], ...]] = {
    "Label": (("name", 1, "bytes", False), ("value", 2, "bytes", False)),
    "Sample": (("value", 1, "double", False), ("timestamp", 2, "int64", False)),
    "TimeSeries1": (
        ("labels", 1, "Label", True),
        ("samples", 2, "Sample", True),
        ("exemplars", 3, "bytes", True),
        ("histograms", 4, "bytes", True),
    ),
    "TimeSeries2": (
        ("labels_refs", 1, "uint32", True),
        ("samples", 2, "Sample", True),
        ("histograms", 3, "bytes", True),
        ("exemplars", 4, "bytes", True),
    ),
    "Request1": (("timeseries", 1, "TimeSeries1", True), ("metadata", 3, "bytes", True)),
    "Request2": (("symbols", 4, "bytes", True), ("timeseries", 5, "TimeSeries2", True)),
}
"""Name, number, kind and "repeated" of each field."""


def _declared() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="gpuledger/remote_write.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        declared = file.message_type.add(name=name)
        for field, number, kind, is_repeated in fields:
            label = _FIELD.LABEL_REPEATED if is_repeated else _FIELD.LABEL_OPTIONAL
            made = declared.field.add(name=field, number=number, label=label)
            if kind in _KINDS:
                made.type = _KINDS[kind]
            else:
                made.type, made.type_name = _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    return file


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_declared())


def message_class(name: str) -> Any:
    """The class of message `name`: `TimeSeries1`, `TimeSeries2`, and the whole requests, which only senders make."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


def read(kind: Any, body: bytes) -> Any:
    """The message in `body`. Raises BadInput for bytes that are none."""
    try:
        return kind.FromString(body)
    except message.DecodeError as error:
        raise malformed("a series is no protobuf message") from error
