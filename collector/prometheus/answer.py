"""Answers of the query API, as columns. Pure: bytes in, arrays out.

A range query's answer is nearly all values, `[[1718000000,"97"],[1718000030,"98"],...]`, and a JSON parser makes
three Python objects of each. Servers write that text without blanks, so that it can be cut at the brackets, which
never stand inside a value, and read as two columns of numbers by Arrow; Python then works once for each series and
never for a sample. A text of any other form (indented, with histograms, a vector) is read by the JSON parser, to the
same result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as arrow_csv

from gpuledger.errors import SourceError

_RESULT = b'"resultType":"matrix","result":['
_METRIC, _VALUES, _END = b'{"metric":', b',"values":[[', b"]]}"
_READ = arrow_csv.ReadOptions(column_names=["at", "value"], use_threads=False, block_size=8 * 2**20)
_CONVERT = arrow_csv.ConvertOptions(
    column_types={"at": pa.float64(), "value": pa.float64()}, null_values=[], strings_can_be_null=False
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered, series after series.

    `labels` holds each series' labels as JSON text (the same bytes for the same series of one server), `lengths` how
    many samples each has; `times_ms` and `values` hold the samples one after the other. `warnings` is what the server
    said beside it: then the answer may be incomplete.
    """

    labels: Sequence[bytes]
    lengths: npt.NDArray[np.int64]
    times_ms: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    warnings: Sequence[str] = ()

    def series(self) -> Iterator[dict[str, str]]:
        """The labels of each series."""
        for text in self.labels:
            yield labels_of(text)


def labels_of(text: bytes) -> dict[str, str]:
    """Labels from the text in which an answer holds them."""
    return {str(name): str(value) for name, value in json.loads(text).items()}


def parse(body: bytes) -> Answer:
    """The answer to a query or a range query.

    Raises SourceError: the server's own error with its type, or that the text is no answer at all.
    """
    cut = _cut(body)
    if cut is not None:
        return cut
    document = parse_document(body)
    result = document.get("data")
    if not isinstance(result, Mapping) or "resultType" not in result:
        raise SourceError("the answer has no result")
    try:
        return _collected(result, _warnings(document))
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise SourceError(f"the answer is not of the query API: {type(error).__name__}: {error}") from error


def parse_document(body: bytes) -> Mapping[str, Any]:
    """The JSON of an answer that is a success. Raises SourceError like `parse`."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"the answer is no JSON: {bytes(body[:60])!r}") from error
    if not isinstance(document, Mapping) or document.get("status") != "success":
        raise SourceError(_complaint(document))
    return document


def _complaint(document: Any) -> str:
    if not isinstance(document, Mapping) or "errorType" not in document:
        return "the answer is not of the query API"
    return f"{document['errorType']}: {str(document.get('error', ''))[:500]}"


def _warnings(document: Mapping[str, Any]) -> tuple[str, ...]:
    said = [str(text) for name in ("warnings", "infos") for text in document.get(name) or ()]
    return (*said, *(["the answer is partial"] if document.get("isPartial") else []))


def _collected(result: Mapping[str, Any], warnings: Sequence[str]) -> Answer:
    """The general way: any form of result, one Python object after the other."""
    kind, held = result["resultType"], result["result"]
    if kind in {"scalar", "string"}:
        held = [{"metric": {}, "value": held}]
    elif kind not in {"matrix", "vector"}:
        raise ValueError(f"a result of type {kind!r}")
    # Native histograms stand beside or instead of values; they are no readings.
    rows = [item["values"] if "values" in item else [item["value"]] if "value" in item else [] for item in held]
    return Answer(
        tuple(json.dumps(item["metric"], separators=(",", ":")).encode() for item in held),
        np.array([len(row) for row in rows], np.int64),
        _milliseconds(np.array([float(at) for row in rows for at, _ in row], np.float64)),
        np.array([float(value) for row in rows for _, value in row], np.float64),
        warnings,
    )


def _milliseconds(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    if not np.isfinite(seconds).all() or (len(seconds) and np.abs(seconds).max() > 1e14):
        raise ValueError("a time that is none")
    return np.rint(seconds * 1000).astype(np.int64)


def _cut(body: bytes) -> Answer | None:
    """The fast way: None where the text is not exactly of the form that servers write."""
    start = body.find(_RESULT)
    if start < 0 or b'"histograms"' in body:
        return None
    position = start + len(_RESULT)
    labels, spans, end = _pieces(body, position)
    if body[end : end + 1] != b"]":
        return None
    try:
        document = parse_document(body[:position] + body[end:])
        lengths = np.array([span.count(b"],[") + 1 for span in spans], np.int64)
        table = _numbers(spans)
        if table.num_rows != lengths.sum():
            return None
        times, values = (table[name].to_numpy() for name in ("at", "value"))
        return Answer(labels, lengths, _milliseconds(times), values, _warnings(document))
    except (SourceError, ValueError, pa.ArrowException):
        return None


def _pieces(body: bytes, position: int) -> tuple[list[bytes], list[bytes], int]:
    """Each series' labels and values as text, and where the list of series ends.

    Quotes inside a JSON string are escaped, so that none of the marks can stand inside a label.
    """
    labels, spans, find = [], [], body.find
    while body.startswith(_METRIC, position):
        begin = find(_VALUES, position)
        end = find(_END, begin)
        if begin < 0 or end < 0:
            break
        labels.append(body[position + len(_METRIC) : begin])
        spans.append(body[begin + len(_VALUES) : end])
        position = end + len(_END)
        if body[position : position + 1] != b",":
            break
        position += 1
    return labels, spans, position


def _numbers(spans: Sequence[bytes]) -> pa.Table:
    """Columns `at` and `value`. Raises ArrowException for what is not two numbers a sample."""
    if not spans:
        return pa.table({"at": pa.array([], pa.float64()), "value": pa.array([], pa.float64())})
    text = b"],[".join(spans).replace(b"],[", b"\n").replace(b'"', b"")
    if b"Inf" in text:
        text = text.replace(b"+Inf", b"inf").replace(b"-Inf", b"-inf")
    return arrow_csv.read_csv(pa.BufferReader(text), read_options=_READ, convert_options=_CONVERT)
