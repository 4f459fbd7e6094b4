"""Request bodies, read no further than a limit."""

from __future__ import annotations

from fastapi import Request

from gpuledger.errors import TooLarge


async def read_body(request: Request, limit: int) -> bytes:
    """The request's body as it was sent. Raises TooLarge once more than `limit` bytes are declared or read."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit:
        raise TooLarge("body", limit)
    parts, held = [], 0
    async for part in request.stream():
        held += len(part)
        if held > limit:
            raise TooLarge("body", limit)
        parts.append(part)
    return b"".join(parts)
