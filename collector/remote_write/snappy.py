"""The raw snappy block of a request, decoded within a bound that is checked before anything is allocated."""

from __future__ import annotations

from typing import cast

import pyarrow as pa

from collector.remote_write.wire import varint
from gpuledger.errors import BadInput, TooLarge

MAX_DECODED_BYTES = 32 * 2**20

_BEST_RATIO = 22
"""No block unpacks to more: its densest element writes 64 bytes from 3."""


def declared_size(block: bytes, max_bytes: int = MAX_DECODED_BYTES) -> int:
    """How many bytes `block` says it unpacks to.

    Raises TooLarge above `max_bytes`, BadInput for a size that so short a block cannot produce.
    """
    size, begin = varint(block, 0)
    if size > max_bytes:
        raise TooLarge("body", max_bytes)
    if size > _BEST_RATIO * (len(block) - begin):
        raise BadInput("body", f"{len(block)} bytes of snappy cannot hold the {size} that they declare")
    return size


def decode(block: bytes, max_bytes: int = MAX_DECODED_BYTES) -> bytes:
    """The bytes in `block`. Raises TooLarge or BadInput."""
    size = declared_size(block, max_bytes)
    try:
        return cast("bytes", pa.decompress(block, decompressed_size=size, codec="snappy", asbytes=True))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput("body", "is no raw snappy block") from error
