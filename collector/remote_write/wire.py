"""As much of protobuf's wire format as a request's outermost level needs: varints, fields, and their bounds.

Read by hand so that neither a flood of empty messages nor one huge message is ever turned into objects.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from gpuledger.errors import BadInput

Places = npt.NDArray[np.int64]
"""Positions in a request's bytes."""

MAX_FIELDS = 250_000
"""Fields of one request. A sender's default is 2,000 samples; what is beyond is no metrics sender."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
_MOST_KINDS = 16


def malformed(reason: str) -> BadInput:
    """The error for bytes that are no request."""
    return BadInput("body", f"is no remote-write request: {reason}")


def varint(raw: bytes, position: int) -> tuple[int, int]:
    """The number at `position` and the position after it. Raises BadInput where none ends."""
    value = shift = 0
    for at in range(position, min(position + _LONGEST_VARINT, len(raw))):
        value |= (raw[at] & 0x7F) << shift
        if raw[at] < 0x80:
            return value, at + 1
        shift += 7
    raise malformed("a number has no end")


def messages(raw: bytes, field: int) -> tuple[Places, Places, dict[int, int]]:
    """Where the messages of `field` begin and stop, and how many of each other field there are."""
    tag = field << 3 | _BYTES
    starts: list[int] = []
    marks: list[int] = []
    others: dict[int, int] = {}
    add = starts.append
    position, end = 0, len(raw)
    try:
        while position < end:
            if raw[position] != tag:
                marks.append(position)
                position = _other(raw, position, others)
                continue
            add(position)
            # `varint`, spelled out for its two usual lengths: a call would cost more than all the rest.
            size = raw[position + 1]
            if size < 0x80:
                position += size + 2
            elif (high := raw[position + 2]) < 0x80:
                position += size + (high << 7) - 0x7D
            else:
                size, position = varint(raw, position + 1)
                position += size
    except IndexError:
        raise malformed("it is cut short") from None
    if position > end:
        raise malformed("it is cut short")
    if len(starts) > MAX_FIELDS:
        raise malformed("too many series")
    return *_bounds(raw, starts, [*marks, end]), others


def _bounds(raw: bytes, starts: list[int], marks: list[int]) -> tuple[Places, Places]:
    """Begin and stop of the messages in the fields at `starts`. A field ends where another starts, or at a mark."""
    tagged = np.array(starts, np.int64)
    octets = np.frombuffer(raw, np.uint8)
    # A length has as many bytes as it takes until one is below 0x80.
    length = np.ones(len(tagged), np.int64)
    rest = np.flatnonzero(octets[tagged + 1] >= 0x80) if len(tagged) else tagged
    while len(rest):
        length[rest] += 1
        rest = rest[octets[tagged[rest] + length[rest]] >= 0x80]
    ends = np.sort(np.concatenate([tagged, np.array(marks, np.int64)]))
    return tagged + 1 + length, ends[np.searchsorted(ends, tagged, side="right")]


def _other(raw: bytes, position: int, counts: dict[int, int]) -> int:
    """The position after a field that is no series; it is counted."""
    number, _, position = _field(raw, position)
    counts[number] = counts.get(number, 0) + 1
    if len(counts) > _MOST_KINDS or counts[number] > MAX_FIELDS:
        raise malformed("too many fields")
    return position


def fields(raw: bytes, *wanted: int) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields `wanted`, in order. Raises BadInput for broken ones or too many."""
    position = count = 0
    while position < len(raw):
        count += 1
        if count > MAX_FIELDS:
            raise malformed("too many fields")
        number, begin, position = _field(raw, position)
        if number in wanted and begin is not None:
            yield number, raw[begin:position]


def _field(raw: bytes, position: int) -> tuple[int, int | None, int]:
    """Number of the field at `position`, where its bytes begin (None: it has none), and the position after it."""
    key, position = varint(raw, position)
    number, kind = key >> 3, key & 7
    begin: int | None = None
    if kind == _VARINT:
        _, position = varint(raw, position)
    elif kind == _BYTES:
        size, begin = varint(raw, position)
        position = begin + size
    elif kind in (_FIXED64, _FIXED32):
        position += 8 if kind == _FIXED64 else 4
    else:
        raise malformed("an unknown kind of field")
    if position > len(raw) or number == 0:
        raise malformed("it is cut short")
    return number, begin, position


def label_prefix(body: bytes) -> tuple[int, int]:
    """How many bytes at the start of a version 1 series are its labels, and how many labels those are."""
    position = count = 0
    end = len(body)
    while position + 1 < end and body[position] == (1 << 3 | _BYTES):
        size = body[position + 1]
        if size < 0x80:
            position += size + 2
        else:
            _, _, position = _field(body, position)
        count += 1
    return position, count
